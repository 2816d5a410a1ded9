"""How is a broker made low on something, and stopped and started again? Holdfast's own by us, others by a command."""

import shlex
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from tests.conformance.brokers import Broker, served_holdfast
from tests.disks import Ballast

__all__ = ["CommandControl", "Control", "OwnHoldfast"]


class Control(Protocol):
    """Power over a broker."""

    @property
    def broker(self) -> Broker:
        """Where it listens now."""
        ...

    def block(self) -> None:
        """Let it be low on memory or disk."""
        ...

    def unblock(self) -> None:
        """Let it have enough again."""
        ...

    def stop(self) -> None:
        """Shut it down, as an operator would."""
        ...

    def start(self) -> None:
        """Start it again."""
        ...


class CommandControl:
    """A broker that a command of the machine it is on controls: its last word is what to do."""

    def __init__(self, broker: Broker, command: str) -> None:
        self.broker = broker
        self._command = shlex.split(command)

    def block(self) -> None:
        self._do("block")

    def unblock(self) -> None:
        self._do("unblock")

    def stop(self) -> None:
        self._do("stop")

    def start(self) -> None:
        self._do("start")

    def _do(self, what: str) -> None:
        subprocess.run([*self._command, what], check=True, timeout=120, stdout=subprocess.DEVNULL)


class OwnHoldfast:
    """A `holdfast serve` of ours."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._ballast = Ballast(folder)
        self._running = ExitStack()
        self.broker: Broker
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.unblock()
        self.stop()

    def block(self) -> None:
        self._ballast.take()

    def unblock(self) -> None:
        self._ballast.give_back()

    def stop(self) -> None:
        self._running.close()

    def start(self) -> None:
        self.broker = self._running.enter_context(served_holdfast(self._data, disk_free_limit=self._ballast.limit))
