"""`holdfast queues` and `stats` show counts, also while another process works."""

import json
import re
import signal

from tests.cli.terminal import Terminal


def test_queues_lists_every_queue_with_its_counts(holdfast: Terminal) -> None:
    holdfast("put orders a b c")
    holdfast("put mails x --delay 1h")
    holdfast("get orders")
    header, *rows = [line.split() for line in holdfast("queues").lines]
    assert header == ["queue", "ready", "delayed", "leased", "dead", "oldest", "acked"]
    assert rows[0][:5] == ["mails", "0", "1", "0", "0"]
    assert rows[1][:5] == ["orders", "2", "0", "0", "0"] and rows[1][-1] == "1"


def test_queues_as_json_has_the_figures_of_each(holdfast: Terminal) -> None:
    holdfast("put orders a b")
    (orders,) = holdfast("queues --json").json["queues"]
    assert (orders["name"], orders["log"], orders["ready"], orders["dead"]) == ("orders", "orders", 2, 0)
    assert orders == holdfast("stats orders --json").json | {"oldest_age": orders["oldest_age"]}


def test_a_queue_on_another_log_names_it(holdfast: Terminal) -> None:
    holdfast.put("billing", b"event", log="events")
    assert holdfast("queues").lines[1].split()[:2] == ["billing", "events"]
    assert holdfast("stats billing").lines[0] == "billing on the log events"


def test_a_paused_queue_is_marked_in_the_list(holdfast: Terminal) -> None:
    holdfast("put orders a")
    holdfast("put mails b")
    holdfast("pause orders")
    assert [line.split()[-1] for line in holdfast("queues").lines] == ["state", "-", "paused"]
    assert [queue["paused"] for queue in holdfast("queues --json").json["queues"]] == [False, True]


def test_a_store_without_queues_says_so(holdfast: Terminal) -> None:
    holdfast.fill("clicks", 1)
    assert holdfast("queues").out == f"no queues in {str(holdfast.data)!r} yet\n"
    assert holdfast("stats").out == f"no queues in {str(holdfast.data)!r} yet\n"
    assert holdfast("queues --json").json == holdfast("stats --json").json == {"queues": []}


def test_stats_shows_what_waits_what_is_held_and_what_failed(holdfast: Terminal) -> None:
    holdfast.fail("orders", b"bad")
    holdfast("put orders a b c")
    holdfast("put orders later --delay 1h")
    holdfast("get orders")
    holdfast("get orders --no-ack")
    lines = [" ".join(line.split()) for line in holdfast("stats orders").lines]
    assert lines[0] == "orders"
    assert re.fullmatch(r"ready 1 oldest: .* m?s", lines[1])
    assert re.fullmatch(r"delayed 1 next due in 59 min .*", lines[2])
    assert lines[3:5] == ["leased 1 in 1 lease", "dead 1 see holdfast dlq orders"]
    assert "acked 1" in lines
    assert "dead-lettered 1" in lines
    assert "lease 30 s; 2 attempts, then dead-lettered to orders.dead" in lines


def test_stats_as_json_has_every_figure(holdfast: Terminal) -> None:
    holdfast("put orders a --delay 1h")
    figures = holdfast("stats orders --json").json
    assert figures["name"] == "orders"
    assert figures["delayed"] == 1 and figures["next_due_time"].endswith("Z")
    assert figures["put_rate"] > 0
    assert figures["lease_rate"] is figures["ack_rate"] is figures["duplicates"] is None
    assert (figures["dedup_window"], figures["dedup_shortened"]) == (300.0, False)


def test_stats_of_all_queues_come_one_after_the_other(holdfast: Terminal) -> None:
    holdfast("put orders a")
    holdfast("put mails b")
    assert [queue["name"] for queue in holdfast("stats --json").json["queues"]] == ["mails", "orders"]
    lines = holdfast("stats").lines
    assert lines.index("mails") < lines.index("orders")


def test_a_dedup_window_that_had_to_be_shortened_is_told(holdfast: Terminal) -> None:
    with holdfast.store() as store:
        queue = store.queue("orders", dedup_limit=2)
        for number in range(5):
            queue.put(b"x", dedup=str(number))
    assert "instead of 5 min: at most 2 ids are kept" in holdfast("stats orders").out
    assert holdfast("stats orders --json").json["dedup_shortened"] is True


def test_a_panel_is_drawn_on_a_terminal_and_plain_lines_elsewhere(holdfast: Terminal) -> None:
    holdfast("put orders a")
    assert "╭" in holdfast("stats orders", colors=True).out
    assert "╭" not in holdfast("stats orders").out
    assert not any(line != line.rstrip() for line in holdfast("stats orders").lines)


def test_watching_adds_the_pace_of_the_work(holdfast: Terminal) -> None:
    with holdfast.store() as store:
        queue = store.queue("orders")
        queue.put_many([b"x"] * 100)
        with holdfast.spawn("stats orders --watch --json") as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["ready"] == 100
            queue.ack(queue.lease(60))
            shown = [json.loads(process.stdout.readline())]
            while shown[-1]["total_acked"] < 60 and len(shown) < 60:  # it may have looked before, or in the middle
                shown.append(json.loads(process.stdout.readline()))
            assert (shown[-1]["ready"], shown[-1]["total_acked"]) == (40, 60)
            assert shown[-1]["ack_rate"] > 0 and any(figures["lease_rate"] > 0 for figures in shown)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
