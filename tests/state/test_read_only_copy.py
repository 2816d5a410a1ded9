"""A database that is read while its writer replaces files: another attempt where names changed, an error where not."""

from pathlib import Path

import pytest

from holdfast.base.errors import Corrupt, NotFound
from holdfast.state.read_only_copy import open_mirrored


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A folder with the names of a database."""
    folder = tmp_path / "state"
    folder.mkdir()
    for name in ("CURRENT", "000001.sst", "LOCK", "LOG"):
        (folder / name).write_bytes(b"x")
    return folder


def test_a_file_that_is_replaced_meanwhile_leads_to_another_attempt(database: Path) -> None:
    seen: list[list[str]] = []

    def open_there(mirror: Path) -> None:
        seen.append(sorted(path.name for path in mirror.iterdir()))
        if len(seen) == 1:
            (database / "000001.sst").rename(database / "000002.sst")
            raise Corrupt("a link leads nowhere")

    open_mirrored(database, open_there)
    assert seen == [["000001.sst", "CURRENT"], ["000002.sst", "CURRENT"]]


def test_damage_where_no_file_was_replaced_is_an_error_at_once(database: Path) -> None:
    attempts: list[Path] = []

    def open_there(mirror: Path) -> None:
        attempts.append(mirror)
        raise Corrupt("damaged")

    with pytest.raises(Corrupt, match="damaged"):
        open_mirrored(database, open_there)
    assert len(attempts) == 1


def test_a_writer_that_never_rests_is_not_waited_for_without_end(database: Path) -> None:
    attempts: list[Path] = []

    def open_there(mirror: Path) -> None:
        attempts.append(mirror)
        (database / f"{len(attempts) + 1:06}.sst").touch()
        raise Corrupt("a link leads nowhere")

    with pytest.raises(Corrupt, match="leads nowhere"):
        open_mirrored(database, open_there)
    assert 1 < len(attempts) < 1000


def test_a_folder_without_a_database_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_mirrored(tmp_path / "none", lambda mirror: None)
