"""`holdfast import ledgerq` imports each message once, reports it, and does not change the source."""

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal

FIXTURES = Path(__file__).parent.parent / "queue" / "fixtures" / "ledgerq"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A LedgerQ queue, with its dead letters beside it."""
    shutil.copytree(FIXTURES, tmp_path / "ledgerq")
    return tmp_path / "ledgerq" / "queue"


def rows(lines: list[str]) -> dict[str, str]:
    return dict(line.split("  ", 1) for line in lines)


def test_import_says_what_it_brought_and_what_it_left(holdfast: Terminal, old: Path) -> None:
    result = holdfast(f"import ledgerq {old} jobs")
    assert result.code == 0
    told = {" ".join(name.split()): text.strip() for name, text in rows(result.lines).items()}
    assert told == {
        "from": str(old),
        "imported": "25 messages",
        "dead letters": f"1 from {old.parent / 'dlq'}",
        "expired": "1",
        "delivered before": "3 skipped (--all imports them)",
    }
    assert result.err == (
        "holdfast: not imported: the deduplication ids that LedgerQ still remembers (1): it keeps only their digests\n"
    )


def test_import_as_json_has_every_count(holdfast: Terminal, old: Path) -> None:
    result = holdfast(f"import ledgerq {old} jobs --json")
    counts = result.json
    assert len(counts.pop("notes")) == 1
    assert counts == {
        "queue": "jobs", "source": str(old), "dlq": str(old.parent / "dlq"), "imported": 25, "dead": 1, "expired": 1,
        "already": 0, "read_before": 3, "problems": [],
    }  # fmt: skip
    assert result.err == ""


def test_what_was_imported_is_delivered_with_all_it_had(holdfast: Terminal, old: Path) -> None:
    holdfast(f"import ledgerq {old} jobs")
    first, second, third, failed, *rest = holdfast("get jobs -n 100 --json").json_lines
    assert [each["priority"] for each in (first, second, third, failed)] == [9, 9, 4, 0]
    assert (first["payload"], second["headers"]["x"], third["payload"]) == ("prio-2", "y", "prio-1")
    assert (failed["payload"], failed["headers"]["ledgerq-attempts"]) == ("plain-3", "1")
    assert len(rest) == 21
    assert holdfast("stats jobs --json").json["ready"] == 0


def test_its_dead_letters_are_shown_and_redriven_like_any_others(holdfast: Terminal, old: Path) -> None:
    holdfast(f"import ledgerq {old} jobs")
    assert holdfast("dlq jobs").lines[1].split()[:3] == ["0", "3", "2"]
    assert "second failure" in holdfast("dlq jobs").out
    assert holdfast("redrive jobs 0 --json").json["redriven"] == 1
    assert holdfast("dlq jobs --json").out == ""
    assert "plain-2" in holdfast("peek jobs -n 100 --format raw").raw.decode("latin-1").splitlines()


def test_running_it_again_brings_nothing_twice(holdfast: Terminal, old: Path) -> None:
    holdfast(f"import ledgerq {old} jobs")
    holdfast("get jobs -n 10")
    again = holdfast(f"import ledgerq {old} jobs --json").json
    assert (again["imported"], again["dead"], again["already"]) == (0, 0, 26)
    everything = holdfast(f"import ledgerq {old} jobs --all --json").json
    assert (everything["imported"], everything["already"]) == (2, 26)
    assert holdfast("stats jobs --json").json["ready"] == 17


def test_a_copy_under_the_name_of_the_first_brings_nothing_twice(holdfast: Terminal, old: Path, tmp_path: Path) -> None:
    holdfast(f"import ledgerq {old} jobs --source production")
    shutil.copytree(old, tmp_path / "copy")
    again = holdfast(f"import ledgerq {tmp_path / 'copy'} jobs --source production --no-dlq --json").json
    assert (again["imported"], again["already"]) == (0, 25)


def test_the_source_is_left_as_it_was(holdfast: Terminal, old: Path) -> None:
    def look() -> dict[Path, tuple[int, bytes]]:
        paths = [old.parent, *sorted(old.parent.rglob("*"))]
        return {
            path: (path.stat().st_mtime_ns, b"" if path.is_dir() else hashlib.sha256(path.read_bytes()).digest())
            for path in paths
        }

    before = look()
    holdfast(f"import ledgerq {old} jobs --all")
    assert look() == before


def test_a_source_that_cannot_be_written_is_no_obstacle(holdfast: Terminal, old: Path) -> None:
    for path in [*old.iterdir(), old]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert holdfast(f"import ledgerq {old} jobs --json").json["imported"] == 25
    finally:
        old.chmod(0o755)


@pytest.mark.parametrize("where", ["queue", "queue/data", "dlq/data"])
def test_a_store_in_the_source_is_refused(holdfast: Terminal, old: Path, where: str) -> None:
    result = holdfast(f"import ledgerq {old} jobs --data {old.parent / where}")
    assert result.code == 1
    assert "which is only read" in result.complaint
    assert not list(old.parent.rglob("LOCK"))


def test_damage_is_passed_and_told(holdfast: Terminal, old: Path) -> None:
    segment = old / "00000000000000000009.log"
    content = bytearray(segment.read_bytes())
    content[content.index(b"one-header")] ^= 1
    segment.write_bytes(content)
    result = holdfast(f"import ledgerq {old} jobs")
    assert result.code == 1
    assert "24 messages" in result.out
    assert "queue/00000000000000000009.log: " in result.err and "damaged and were skipped" in result.err
    assert len(holdfast(f"import ledgerq {old} jobs --json").json["problems"]) == 1


def test_dead_letters_may_lie_elsewhere_or_be_left(holdfast: Terminal, old: Path, tmp_path: Path) -> None:
    assert holdfast(f"import ledgerq {old} jobs --no-dlq --json").json["dead"] == 0
    (old.parent / "dlq").rename(tmp_path / "graveyard")
    assert holdfast(f"import ledgerq {old} jobs --json").json["dlq"] is None
    result = holdfast(f"import ledgerq {old} jobs --dlq {tmp_path / 'graveyard'} --json").json
    assert (result["imported"], result["dead"]) == (0, 1)


@pytest.mark.parametrize("options", ["", "--dlq nowhere"])
def test_what_is_no_ledgerq_folder_is_one_line_and_makes_no_store(
    holdfast: Terminal, old: Path, tmp_path: Path, options: str
) -> None:
    folder = old if options else tmp_path
    result = holdfast(f"import ledgerq {folder} jobs {options}")
    assert result.code == 1
    assert "is not a LedgerQ folder" in result.complaint
    assert not holdfast.data.exists()


def test_a_queue_that_cannot_have_dead_letters_is_refused(holdfast: Terminal, old: Path) -> None:
    result = holdfast(f"import ledgerq {old} jobs.dead")
    assert result.code == 1
    assert "'jobs.dead' has no dead letter queue" in result.complaint
    assert holdfast(f"import ledgerq {old} jobs.dead --no-dlq").code == 0


def test_to_choose_dead_letters_and_to_leave_them_makes_no_sense(holdfast: Terminal, old: Path) -> None:
    result = holdfast(f"import ledgerq {old} jobs --dlq x --no-dlq")
    assert result.code == 2
    assert result.complaint.startswith("choose one: --dlq DIR or --no-dlq")


def test_a_large_message_that_is_unpacked_finds_room(holdfast: Terminal, tmp_path: Path) -> None:
    import gzip

    from tests.queue.test_ledgerq_reader import a_segment, an_entry

    payload = b"larger than what a log takes by default " * 300_000
    (tmp_path / "old").mkdir()
    segment = a_segment(an_entry(1, b"\x01" + gzip.compress(payload, 1), flags=1))
    (tmp_path / "old" / "1.log").write_bytes(segment)
    holdfast(f"import ledgerq {tmp_path / 'old'} jobs")
    assert holdfast("get jobs --format raw").raw == payload
