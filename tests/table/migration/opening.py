"""A store whose tables migrate, opened and closed as often as a test likes."""

from pathlib import Path
from typing import Any

from holdfast.base.clock import Clock
from holdfast.base.files import Files
from holdfast.store import Store
from tests.table.internals import registry_of


class Opened(Store):
    """A store without a background, unless it is asked for, and with a look inside."""

    def __init__(
        self,
        path: Path,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        background: bool = False,
        read_only: bool = False,
    ) -> None:
        super().__init__(path, read_only=read_only, files=files, clock=clock, background=background)

    def table(self, model: Any, **settings: Any) -> Any:
        """As `Store.table`; models here are made in functions, and not known to type checkers."""
        return super().table(model, **settings)

    def step(self) -> float | None:
        """Let the migrations do one step; in how many seconds there is more."""
        return self.migrations().tick()

    def meta(self, name: str) -> dict[str, Any]:
        """What is kept of a table."""
        return registry_of(self).meta(name)

    def entries(self, *families: str) -> list[tuple[str, bytes, bytes]]:
        """What the state holds in some families."""
        state = registry_of(self).state()
        return [(family, key, value) for family in families for key, value in state.scan(family)]
