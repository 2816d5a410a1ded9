"""Does the demo tell the truth, and would it notice a lie?"""

from pathlib import Path

import pytest

from holdfast import Log
from holdfast.cli.demo.orders import count_right
from tests.cli.terminal import Terminal


def test_the_demo_kills_a_writer_and_loses_nothing(holdfast: Terminal, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    result = holdfast(f"demo --records 20000 --json --keep {kept}")
    assert (result.code, result.err) == (0, "")
    figures = result.json
    assert figures["ok"] is True
    assert figures["lost"] == 0
    assert 0 < figures["confirmed"] <= figures["found"] <= figures["records"] == figures["verified"] == 20_000
    assert figures["committed"] == figures["went_on_at"]
    assert figures["found"] + figures["resumed"] == 20_000
    assert figures["followed"] == figures["resumed"]
    assert holdfast(f"log stats orders --json --data {kept}").json["records"] == 20_000


def test_the_demo_would_notice_a_record_that_is_missing(holdfast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_less(log: Log, start: int, stop: int) -> int:
        return max(0, count_right(log, start, stop) - 1)

    monkeypatch.setattr("holdfast.cli.demo.story.count_right", one_less)
    result = holdfast("demo --records 2000 --no-pause")
    assert result.code == 1
    assert "BROKEN" in result.out
    assert result.err.startswith("holdfast: the demo found a broken promise")
    assert "no confirmed record is missing" in result.err


def test_the_demo_does_not_write_into_a_folder_that_is_in_use(holdfast: Terminal, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    result = holdfast(f"demo --keep {tmp_path}")
    assert result.code == 1
    assert "is not empty" in result.complaint
