"""Pipelines that are started over HTTP, and their results; with a real Spark, in its own process."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.pipeline_runs import ID_VARIABLE, Runs, noted
from holdfast.testing import SimClock
from tests.cli.test_url import run as run_cli
from tests.web.serving import Served

ALL = "/api/holdfast/pipelines"


def finished(served: Served, id: str) -> dict[str, Any]:
    """A run once it has ended."""
    for _ in range(3000):
        answer = served.ask("GET", f"{ALL}/runs/{id}")
        if answer.status == 200 and answer.json["state"] != "running":
            found: dict[str, Any] = answer.json
            return found
        time.sleep(0.1)
    raise AssertionError("the pipeline does not end")


@pytest.mark.xdist_group("spark")
def test_a_pipeline_runs_while_the_server_runs_and_reports_its_result(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        store.log("clicks").append_many([b"x"] * 50)
    with Served(tmp_path / "data") as served:
        served.add_user("ann", tags=("administrator",))
        begun = served.post(f"{ALL}/verify/runs", {"options": {"log": "clicks"}, "master": "local[1]"}, user="ann")
        listed = served.get(ALL)
        assert [one["name"] for one in listed["pipelines"]][:2] == ["archive", "replay"]
        found = finished(served, begun["id"])
        assert (found["state"], found["ok"], found["facts"]["records"]) == ("done", True, 50)
        for _ in range(600):
            listed = served.get(ALL)
            if not listed["options_pending"]:
                break
            time.sleep(0.1)
        verify = next(one for one in listed["pipelines"] if one["name"] == "verify")
        assert [one["name"] for one in verify["options"]] == ["log"]
        assert listed["runs"][0]["id"] == begun["id"]


def test_what_cannot_run_is_rejected_or_reported(served: Served) -> None:
    served.add_user("ann", tags=("administrator",))
    assert served.ask("POST", f"{ALL}/none/runs", {}, user="ann").status == 404
    assert served.ask("POST", f"{ALL}/verify/runs", {"options": {"log": {"x": 1}}}, user="ann").status == 400
    assert served.ask("POST", f"{ALL}/verify/runs", {"options": {"colour": "red"}}, user="ann").status == 400
    answer = served.ask("POST", f"{ALL}/backfill/runs", {"options": {"table": "T", "index": "i"}}, user="ann")
    assert answer.status == 400 and "stop the server" in answer.json["reason"]
    assert "backfill" not in [one["name"] for one in served.get(ALL)["pipelines"]]
    assert served.ask("GET", f"{ALL}/runs/none").status == 404
    begun = served.post(f"{ALL}/replay/runs", {"options": {"first": "red", "log": "x", "to_log": "y"}}, user="ann")
    found = finished(served, begun["id"])
    assert (found["state"], "red" in found["error"]) == ("failed", True)


def test_a_run_that_was_started_is_found_at_once(served: Served) -> None:
    served.add_user("ann", tags=("administrator",))
    begun = served.post(f"{ALL}/verify/runs", {"options": {"log": "none"}}, user="ann")
    answer = served.ask("GET", f"{ALL}/runs/{begun['id']}")
    assert (answer.status, answer.json["pipeline"]) == (200, "verify")
    assert (answer.json["id"], answer.json["started_at"] >= begun["started_at"]) == (begun["id"], True)
    assert served.get(ALL)["runs"][0]["id"] == begun["id"]
    finished(served, begun["id"])


def test_a_pipeline_at_a_url_tells_what_came_of_it(served: Served) -> None:
    served.add_user("ann", tags=("administrator",))
    url = served.url.replace("http://", "http://ann:ann@")
    result = run_cli(["pipeline", "run", "verify", "--option", "log=absent", "--url", url])
    assert (result.code, "no pipeline run" in result.err, "absent" in result.err) == (1, False, True), result.err


def test_a_run_is_noted_whatever_comes_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(tmp_path)
    with noted(tmp_path, "verify", {"log": "x", "out": Path("there")}) as outcome:
        assert [one.state for one in runs.all()] == ["running"]
        outcome.update({"ok": True, "title": "all well", "facts": {"records": 5}, "rows": []})
    (done,) = runs.all()
    assert (done.state, done.title, done.facts, done.options) == (
        "done",
        "all well",
        {"records": 5},
        {"log": "x", "out": "there"},
    )
    with pytest.raises(holdfast.NotFound), noted(tmp_path, "verify", {}):
        raise holdfast.NotFound("no such log")
    assert (runs.all()[0].state, runs.all()[0].error) == ("failed", "no such log")
    with pytest.raises(KeyboardInterrupt), noted(tmp_path, "stream", {}):
        raise KeyboardInterrupt
    assert runs.all()[0].error == "interrupted"
    monkeypatch.setenv(ID_VARIABLE, "chosen")
    with noted(tmp_path, "verify", {}):
        pass
    assert runs.get("chosen").state == "done"
    with noted(tmp_path / "none", "verify", {}):
        pass
    assert not (tmp_path / "none").exists()


def test_a_run_whose_process_is_gone_is_not_running(tmp_path: Path) -> None:
    if (child := os.fork()) == 0:
        Runs(tmp_path).begin("stream", {})
        os._exit(0)
    os.waitpid(child, 0)
    assert [one.state for one in Runs(tmp_path).all()] == ["gone"]


def test_only_the_last_runs_are_remembered(tmp_path: Path) -> None:
    clock = SimClock()
    runs = Runs(tmp_path, clock)
    for number in range(210):
        clock.advance(1)
        runs.end(runs.begin("verify", {"n": number}), ok=True)
    assert len(list((tmp_path / "pipelines").iterdir())) == 200
    assert [one.options["n"] for one in runs.all(3)] == [209, 208, 207]


def test_how_far_a_stream_has_come_is_read_from_its_checkpoint(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        store.log("clicks").append_many([b"x"] * 50)
    offsets = tmp_path / "checkpoint" / "parquet" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "7").write_text('v1\n{"batchWatermarkMs":0}\n{"clicks": {"0": 30, "id": "ff"}}\n')
    (offsets / ".8.crc").write_text("")
    with noted(tmp_path / "data", "stream", {"checkpoint": str(tmp_path / "checkpoint")}):
        pass
    with Served(tmp_path / "data") as served:
        (run,) = served.get(ALL)["runs"]
        assert run["offsets"] == [{"query": "parquet", "log": "clicks", "batch": 7, "offset": 30, "end": 50, "lag": 20}]
