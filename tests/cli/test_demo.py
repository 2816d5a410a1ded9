"""The demo keeps its promises, and would notice a broken one."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Log
from holdfast.cli.demo.orders import count_right
from holdfast.cli.demo.queue_part import Ledger
from tests.cli.terminal import Terminal


def test_the_demo_kills_a_writer_and_loses_nothing(holdfast: Terminal, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    result = holdfast(f"demo --no-spark --records 20000 --orders 1000 --json --keep {kept}")
    assert result.code == 0
    told = [line for line in result.err.splitlines() if "torn tail cut off" not in line]
    assert told == []  # whoever is killed while it writes may leave a torn tail, and only that
    figures = result.json
    assert figures["ok"] is True
    assert figures["lost"] == 0
    assert 0 < figures["confirmed"] <= figures["found"] <= figures["records"] == figures["verified"] == 20_000
    assert figures["committed"] == figures["went_on_at"]
    assert figures["found"] + figures["resumed"] == 20_000
    assert figures["followed"] == figures["resumed"]
    assert holdfast(f"log stats orders --json --data {kept}").json["records"] == 20_000
    # ... and a server, too.
    assert figures["published"] == 2000
    assert figures["backup_bytes"] > 0
    kept_promises = [one["text"] for one in figures["promises"] if one["kept"]]
    assert "every payment confirmed over AMQP survived the kill" in kept_promises
    assert "the backup contains every payment and every customer" in kept_promises
    # ... and a whole machine.
    assert figures["failover_found"] >= figures["failover_confirmed"] > 0
    assert "every message confirmed by the bucket is at the standby" in kept_promises


def test_the_demo_kills_a_worker_and_neither_loses_nor_doubles_an_order(holdfast: Terminal, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    figures = holdfast(f"demo --no-spark --no-serve --records 1000 --orders 3000 --json --keep {kept}").json
    assert figures["ok"] is True
    assert figures["orders"] == figures["shipped"] == 3000
    assert (figures["missing"], figures["doubled"]) == (0, 0)
    assert 0 < figures["shipped_before"] < 3000
    assert figures["came_again"] > 0
    assert (figures["attempts"], figures["redriven"]) == (3, 1)
    after = holdfast(f"stats shipping --json --data {kept}").json
    assert (after["ready"], after["delayed"], after["leased"], after["dead"]) == (0, 0, 0, 0)
    assert (after["total_acked"], after["total_dead"]) == (3000, 1)


def test_the_demo_would_notice_a_record_that_is_missing(holdfast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_less(log: Log, start: int, stop: int) -> int:
        return max(0, count_right(log, start, stop) - 1)

    monkeypatch.setattr("holdfast.cli.demo.log_part.count_right", one_less)
    result = holdfast("demo --no-spark --no-serve --records 2000 --orders 1000 --no-pause")
    assert result.code == 1
    assert "BROKEN" in result.out
    assert result.err.startswith("holdfast: the demo found broken guarantees")
    assert "no confirmed record is missing" in result.err


def test_the_demo_would_notice_an_order_that_is_doubled_or_lost(
    holdfast: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = Ledger.note

    def forgetful(ledger: Ledger, report: dict[str, Any]) -> None:
        note(ledger, report)
        for id, _ in report.get("shipped", ())[:1]:
            ledger.shipped[id] += 1

    monkeypatch.setattr(Ledger, "note", forgetful)
    result = holdfast("demo --no-spark --no-serve --records 1000 --orders 1000 --no-pause")
    assert result.code == 1
    assert "no order was shipped twice" in result.err


def test_the_demo_does_not_write_into_a_folder_that_is_in_use(holdfast: Terminal, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    result = holdfast(f"demo --keep {tmp_path}")
    assert result.code == 1
    assert "is not empty" in result.complaint


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_the_demo_leaves_nothing_behind_when_it_is_told_to_end(tmp_path: Path, number: signal.Signals) -> None:
    command = [
        sys.executable,
        "-m",
        "holdfast",
        "demo",
        "--records",
        "1000",
        "--orders",
        "1000",
        "--no-spark",
        "--stay",
    ]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        said = ""
        while "Press Ctrl-C to stop." not in said:
            said = process.stdout.readline()
            assert said, "it ended before it was told to"
        assert list(tmp_path.glob("holdfast-demo-*"))
        process.send_signal(number)
        try:
            assert process.wait(60) == 128 + number
        finally:
            process.kill()  # else who leaves this block would wait for it
    assert not list(tmp_path.glob("holdfast-demo-*"))
    running = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True).stdout
    assert not [line for line in running.splitlines() if str(tmp_path) in line]
