"""`holdfast log list`, `stats` and `tailers` show the contents of a store."""

from tests.cli.terminal import Terminal, damage_segment


def test_list_shows_a_row_for_each_log(holdfast: Terminal) -> None:
    holdfast.fill("orders", 1500)
    holdfast.fill("clicks", 1)
    holdfast("log tail orders --name audit -n 1")
    header, clicks, orders = holdfast("log list").lines
    assert " ".join(header.split()) == "log records size segments first record last record tailers"
    assert clicks.split()[:2] == ["clicks", "1"]
    assert orders.split()[:2] == ["orders", "1,500"]
    assert orders.split()[-1] == "1"


def test_list_as_json_holds_the_figures_of_each_log(holdfast: Terminal) -> None:
    holdfast.fill("orders", 30, per_segment=10)
    (log,) = holdfast("log list --json").json["logs"]
    assert (log["name"], log["records"], log["start"], log["end"], log["segments"]) == ("orders", 30, 0, 30, 3)
    assert log["bytes"] == sum(path.stat().st_size for path in holdfast.data.rglob("*.data"))
    assert log["first_time"] < log["last_time"]


def test_a_log_s_name_cannot_steer_the_terminal(holdfast: Terminal) -> None:
    holdfast.fill("\x1b[2Jorders", 1)
    assert holdfast("log list").lines[1].startswith("\\x1b[2Jorders")


def test_list_tells_of_damage_that_opening_met(holdfast: Terminal) -> None:
    holdfast.fill("orders", 5)
    damage_segment(holdfast.data, "orders", 0, b"HOLDFAST")
    result = holdfast("log list")
    assert result.lines[1].split()[:2] == ["orders", "5"]
    assert "the segment's header is damaged" in result.err


def test_an_empty_store_is_listed_as_such(holdfast: Terminal) -> None:
    holdfast.store().close()
    assert "no logs in" in holdfast("log list").out
    assert holdfast("log list --json").json == {"logs": []}


def test_a_table_on_a_terminal_fits_a_hundred_columns(holdfast: Terminal) -> None:
    holdfast.fill("orders", 3)
    lines = holdfast("log list", colors=True).lines
    assert len(lines) == 3  # a header, a rule and one row that is not folded
    assert "─" in lines[1]


def test_a_table_in_a_pipe_has_no_rules_colours_or_trailing_blanks(holdfast: Terminal) -> None:
    holdfast.fill("orders", 3)
    for line in holdfast("log stats orders").lines:
        assert line == line.rstrip() and "\x1b" not in line and "─" not in line


def test_stats_shows_sizes_segments_and_tailers_with_their_lag(holdfast: Terminal) -> None:
    holdfast.fill("orders", 250, per_segment=100)
    holdfast("log tail orders --name audit -n 40")
    lines = [line.split() for line in holdfast("log stats orders").lines]
    assert ["records", "250", "(0", "to", "249)"] in lines
    assert [line[1:3] for line in lines if line and "-000" in line[0]] == [["0", "100"], ["100", "100"], ["200", "50"]]
    assert lines[-1][:3] == ["audit", "40", "210"]


def test_stats_as_json_adds_up(holdfast: Terminal) -> None:
    holdfast.fill("orders", 250, per_segment=100)
    holdfast("log tail orders --name audit -n 40")
    stats = holdfast("log stats orders --json").json
    assert [segment["first"] for segment in stats["segment_files"]] == [0, 100, 200]
    assert sum(segment["records"] for segment in stats["segment_files"]) == stats["records"] == 250
    assert sum(segment["bytes"] for segment in stats["segment_files"]) == stats["bytes"]
    assert [(tailer["name"], tailer["position"], tailer["lag"]) for tailer in stats["tailers"]] == [("audit", 40, 210)]


def test_tailers_shows_position_and_lag(holdfast: Terminal) -> None:
    holdfast.fill("orders", 10)
    holdfast("log tail orders --name audit -n 4")
    assert holdfast("log tailers orders").lines[1].split()[:3] == ["audit", "4", "6"]
    (tailer,) = holdfast("log tailers orders --json").json["tailers"]
    assert (tailer["name"], tailer["position"], tailer["lag"]) == ("audit", 4, 6)


def test_a_log_without_tailers_says_so(holdfast: Terminal) -> None:
    holdfast.fill("orders", 1)
    assert holdfast("log tailers orders").out == "the log 'orders' has no named tailers\n"


def test_a_forgotten_tailer_is_gone_even_while_the_log_is_written(holdfast: Terminal) -> None:
    holdfast.fill("orders", 10)
    for name in ("audit", "billing"):
        holdfast(f"log tail orders --name {name}")
    with holdfast.store():
        assert holdfast("log tailers orders --forget audit").out == "deleted the tailer 'audit' of 'orders'\n"
        forgotten = holdfast("log tailers orders --forget billing --json").json
    assert forgotten == {"log": "orders", "forgotten": "billing"}
    assert holdfast("log tailers orders --json").json["tailers"] == []


def test_forgetting_a_tailer_that_is_not_there_names_those_that_are(holdfast: Terminal) -> None:
    holdfast.fill("orders", 10)
    holdfast("log tail orders --name audit")
    result = holdfast("log tailers orders --forget adit")
    assert result.code == 1
    assert result.complaint == "the log 'orders' has no tailer 'adit'; there are: 'audit'"


def test_the_place_of_a_queue_is_not_forgotten(holdfast: Terminal) -> None:
    with holdfast.store() as store:
        store.queue("jobs").put(b"x")
    result = holdfast("log tailers jobs --forget queue:jobs")
    assert result.code == 1
    assert "delete the queue" in result.complaint
    assert [one["name"] for one in holdfast("log tailers jobs --json").json["tailers"]] == ["queue:jobs"]
