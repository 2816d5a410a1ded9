"""What the tests of remote stores share: a served store, and who speaks with it."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from holdfast import RemoteStore
from tests.web.serving import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A served store for all tests of a module: each uses names of its own."""
    with Served(tmp_path_factory.mktemp("remote") / "data") as one:
        yield one


@pytest.fixture
def remote(served: Served) -> Iterator[RemoteStore]:
    """The store as seen from afar."""
    with holdfast.connect(served.url) as store:
        yield store


class Operator(NamedTuple):
    """A store at a server, as an administrator sees it, and the folder below which the server may write."""

    remote: RemoteStore
    folder: Path


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An administrator of a served store."""
    folder = tmp_path_factory.mktemp("operator")
    with Served(folder / "data", allowed_paths=(str(folder),)) as served:
        served.add_user("ann", tags=("administrator",), permissions=(".*", ".*", ".*"))
        with holdfast.connect(served.url, user="ann", password="ann") as remote:
            yield Operator(remote, folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for a store of one's own."""
    return tmp_path / "data"
