"""Requests that make the server read or write files of its machine, or run Spark: permissions and allowed paths."""

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.web.allowed_paths import AllowedPaths
from holdfast.web.api.pipeline_options import checked_master, checked_options
from holdfast.web.responses import Refused
from tests.amqp.serving import Served as ServedApart
from tests.web.serving import Served

BACKUP = "/api/holdfast/backup"
RUNS = "/api/holdfast/pipelines/{}/runs"


@pytest.fixture
def open_to_files(tmp_path: Path) -> Any:
    """A server that may use one folder, with an administrator whom somebody made."""
    (tmp_path / "allowed").mkdir()
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "salaries.json").write_text('{"value": "secret"}\n')
    with Served(tmp_path / "data", allowed_paths=(str(tmp_path / "allowed"),)) as served:
        served.add_user("ann", tags=("administrator",))
        yield served


def test_the_default_user_cannot_make_the_server_touch_files_or_run_spark(
    open_to_files: Served, tmp_path: Path
) -> None:
    token = open_to_files.post("/api/holdfast/tokens", {"name": "mine"})["token"]
    for how in ({}, {"token": token}):
        for path, content in (
            (BACKUP, {"to": str(tmp_path / "allowed" / "backup")}),
            (RUNS.format("load"), {"options": {"source": str(tmp_path / "private"), "queue": "mine"}}),
            (RUNS.format("replay"), {"options": {"log": "x", "to_log": "y", "where": "key = 'ann'"}}),
            (RUNS.format("verify"), {}),
        ):
            answer = open_to_files.ask("POST", path, content, **how)
            assert (answer.status, answer.json["error"]) == (403, "access_refused")
            assert "holdfast user add" in answer.json["reason"]
    assert list((tmp_path / "allowed").iterdir()) == []


def test_the_default_user_cannot_make_itself_an_administrator_who_may(open_to_files: Served) -> None:
    users = open_to_files.site.broker.users
    before = users.all()
    mine = {"password": "mine", "tags": "administrator"}
    for method, path, content in (
        ("PUT", "/api/users/mine", mine),
        ("PUT", "/api/users/guest", mine),
        ("PUT", "/api/users/ann", mine),
        ("PUT", "/api/users/ann", {"password": "mine", "tags": ""}),
        ("DELETE", "/api/users/ann", None),
        ("POST", "/api/users/bulk-delete", {"users": ["ann"]}),
        ("POST", "/api/definitions", {"users": [{"name": "mine", **mine}]}),
        ("POST", "/api/definitions", {"users": [{"name": "mine", "password": "mine", "tags": ["administrator"]}]}),
        ("POST", "/api/definitions", {"users": [{"name": "ann", "password": "mine", "tags": []}]}),
    ):
        answer = open_to_files.ask(method, path, content)
        assert answer.status in (401, 403), (method, path, content)  # 401 in RabbitMQ's API
        assert "holdfast user add" in answer.json["reason"]
        assert users.all() == before
    assert open_to_files.ask("PUT", "/api/users/clerk", {"password": "clerk", "tags": "management"}).status == 201
    assert open_to_files.ask("PUT", "/api/users/eve", mine, user="ann").status == 201


TAGS: list[Any] = [
    "administrator",
    "management,administrator",
    " administrator , management",
    "admin istrator",
    "administrator\t",
    "\nadministrator",
    "admini\nstrator",
    "Administrator",
    "ADMINISTRATOR",
    "administrator\u00a0",
    "\u3000administrator",
    "administrator\0",
    ["administrator"],
    ["management", "administrator"],
    ["admin istrator"],
    ["administrator "],
    ["administrator,management"],
    ["Administrator"],
    [["administrator"]],
    [{"administrator": True}],
    {"administrator": True},
    ["administrator", 1],
]
"""Tags as a request may write them; some mean the tag `administrator`, others only look like it."""


def users_with(served: Served, tags: Any, user: str) -> list[tuple[str, ...]]:
    """What each route records for a new user with such tags, where it does not refuse them."""
    mine = {"name": "mine", "password": "mine", "tags": tags}
    twice = {"users": [{"name": "mine", "password": "mine", "tags": ""}, mine]}
    recorded = []
    for method, path, content in (
        ("POST", "/api/definitions", {"users": [mine]}),
        ("POST", "/api/definitions", twice),
        ("PUT", "/api/users/mine", mine),
    ):
        status = served.ask(method, path, content, user=user).status
        found = [one.tags for one in served.site.broker.users.all() if one.name == "mine"]
        assert (status < 300) == bool(found), (status, tags)  # refused: nothing of it was taken over
        recorded += found
        if found:
            assert served.ask("DELETE", "/api/users/mine", user="ann").status == 204
    return recorded


def test_the_default_user_makes_no_administrator_however_the_tags_are_written(open_to_files: Served) -> None:
    made = 0
    for tags in TAGS:
        assert not any("administrator" in one for one in users_with(open_to_files, tags, "guest")), tags
        by_an_administrator = users_with(open_to_files, tags, "ann")
        assert len(set(by_an_administrator)) <= 1, tags  # all routes read tags alike
        made += "administrator" in by_an_administrator[0] if by_an_administrator else 0
    assert made >= 7  # the others only look like it


def test_of_users_that_are_deleted_together_none_goes_where_one_is_an_administrator(open_to_files: Served) -> None:
    open_to_files.add_user("clerk")
    answer = open_to_files.ask("POST", "/api/users/bulk-delete", {"users": ["clerk", "ann"]})
    assert answer.status == 401
    assert {"clerk", "ann"} <= {user.name for user in open_to_files.site.broker.users.all()}


def test_guest_with_a_password_of_its_own_is_an_administrator_like_any_other(
    open_to_files: Served, tmp_path: Path
) -> None:
    users = open_to_files.site.broker.users
    open_to_files.site.on_broker(lambda: users.change_password("guest", "only I know"))
    to = {"to": str(tmp_path / "allowed" / "backup")}
    assert open_to_files.ask("POST", BACKUP, to, password="only I know").status == 200
    open_to_files.site.on_broker(lambda: users.change_password("guest", "guest"))
    assert open_to_files.ask("POST", BACKUP, {"to": str(tmp_path / "allowed" / "b2")}).status == 403


def test_a_backup_goes_only_below_a_folder_that_the_configuration_names(open_to_files: Served, tmp_path: Path) -> None:
    allowed, private = tmp_path / "allowed", tmp_path / "private"
    (allowed / "link").symlink_to(private)
    for to in (
        private / "backup",
        allowed / ".." / "private" / "backup",
        allowed / "link" / "backup",
        Path("/tmp/backup"),
        tmp_path / "allowed-too",
        "backup",
        "",
        f"{allowed}/a\0b",
        "s3://bucket/backup",
        f"file://{allowed}/backup",
    ):
        answer = open_to_files.ask("POST", BACKUP, {"to": str(to)}, user="ann")
        assert answer.status in (400, 403), to
    assert [path.name for path in private.iterdir()] == ["salaries.json"]
    done = open_to_files.ask("POST", BACKUP, {"to": str(allowed / "backup")}, user="ann")
    assert done.status == 200
    assert (allowed / "backup").is_dir()


def test_no_path_of_the_server_is_open_to_requests_by_default(tmp_path: Path) -> None:
    with Served(tmp_path / "data") as served:
        served.add_user("ann", tags=("administrator",))
        answer = served.ask("POST", BACKUP, {"to": str(tmp_path / "backup")}, user="ann")
        assert answer.status == 403
        assert "allowed_paths" in answer.json["reason"]
        content = {"options": {"source": str(tmp_path), "queue": "mine"}}
        assert served.ask("POST", RUNS.format("load"), content, user="ann").status == 403
    assert not (tmp_path / "backup").exists()


def test_a_pipeline_reads_and_writes_only_below_folders_that_the_configuration_names(
    open_to_files: Served, tmp_path: Path
) -> None:
    allowed, private = tmp_path / "allowed", tmp_path / "private"
    (allowed / "link.json").symlink_to(private / "salaries.json")
    for pipeline, options in (
        ("load", {"source": str(private / "salaries.json"), "queue": "mine"}),
        ("load", {"source": str(allowed), "queue": "mine"}),
        ("load", {"source": f"{allowed}/*.json", "queue": "mine"}),
        ("load", {"source": f"{allowed}/{{x,../private/salaries.json}}", "queue": "mine"}),
        ("load", {"source": f"{tmp_path}/*/salaries.json", "queue": "mine"}),
        ("load", {"source": f"file:{private}/salaries.json", "queue": "mine"}),
        ("archive", {"lake": str(private / "lake")}),
        ("replay", {"log": "x", "to_log": "y", "lake": str(private)}),
        ("lifecycle", {"out": str(private)}),
        ("deadletters", {"out": str(private)}),
        ("report", {"out": str(private)}),
        ("stream", {"log": "x", "checkpoint": str(private), "queue": "q"}),
        ("stream", {"log": "x", "checkpoint": str(allowed), "out": str(private)}),
    ):
        answer = open_to_files.ask("POST", RUNS.format(pipeline), {"options": options}, user="ann")
        assert answer.status == 403, (pipeline, options, answer.body)
    assert open_to_files.get("/api/holdfast/pipelines", user="ann")["runs"] == []


def test_paths_are_handed_on_without_links_and_dots(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    paths = AllowedPaths([str(tmp_path)])
    assert paths.check(f"{tmp_path}/link/../a/x", "it") == tmp_path / "a" / "x"
    assert paths.check_source(f"{tmp_path}/link/*.csv", "it") == f"{tmp_path}/a/*.csv"
    given = {"lake": f"{tmp_path}/link", "logs": ["a", "b"], "records": True}
    assert list(checked_options("archive", given, paths)) == [
        ("lake", f"{tmp_path}/a"),
        ("logs", "a"),
        ("logs", "b"),
        ("records", "true"),
    ]


def test_a_cycle_of_links_is_rejected(open_to_files: Served, tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    (allowed / "files").mkdir()
    (allowed / "circle").symlink_to(allowed / "circle")
    (allowed / "there").symlink_to(allowed / "back")
    (allowed / "back").symlink_to(allowed / "there")
    (allowed / "files" / "around").symlink_to(allowed / "files" / "around")
    for to in ("circle", "circle/backup", "there", "back/x/../y", "x" * 5000 + "/../circle/b"):
        answer = open_to_files.ask("POST", BACKUP, {"to": f"{allowed}/{to}"}, user="ann")
        assert (answer.status, answer.json["error"]) == (403, "access_refused"), to
        assert "cannot be resolved" in answer.json["reason"]
    for source in ("circle", "circle/*.json", "there/*.json", "files", "files/*", "*"):
        options = {"source": f"{allowed}/{source}", "queue": "mine"}
        answer = open_to_files.ask("POST", RUNS.format("load"), {"options": options}, user="ann")
        assert (answer.status, answer.json["error"]) == (403, "access_refused"), source


def test_a_pipeline_writes_nothing_that_is_the_servers_own(open_to_files: Served, tmp_path: Path) -> None:
    source = str(tmp_path / "allowed")
    for pipeline, options in (
        ("load", {"source": source, "log": "holdfast.definitions"}),
        ("load", {"source": source, "log": " holdfast.definitions"}),
        ("load", {"source": source, "queue": "holdfast.mine"}),
        ("replay", {"log": "x", "to_log": "holdfast.definitions", "execute": True}),
        ("replay", {"log": "x", "to-log": "holdfast.history"}),
        ("replay", {"log": "x", "to_queue": "holdfast.definitions"}),
        ("stream", {"log": "x", "queue": "holdfast.definitions", "available_now": True}),
    ):
        answer = open_to_files.ask("POST", RUNS.format(pipeline), {"options": options}, user="ann")
        assert (answer.status, answer.json["error"]) == (403, "access_refused"), (pipeline, options)
        assert "only the server writes" in answer.json["reason"]
    paths = AllowedPaths([])
    assert list(checked_options("replay", {"log": "holdfast.history", "to_log": "mine"}, paths)) == [
        ("log", "holdfast.history"),
        ("to_log", "mine"),
    ]


def test_a_request_does_not_choose_the_cluster_that_gets_the_data() -> None:
    for master in ("", "local", "local[4]", "local[*]", "local[2,3]"):
        assert checked_master(master) == master
    for master in ("spark://evil.example:7077", "k8s://x", "yarn", "sc://x", "local[2]x", "local-cluster[1,1,1]"):
        with pytest.raises(Refused, match="SPARK_MASTER"):
            checked_master(master)


def test_an_option_that_is_not_known_is_refused(tmp_path: Path) -> None:
    paths = AllowedPaths([])
    for name in ("colour", "data", "spark", "log=x", ""):
        with pytest.raises(holdfast.InvalidArgument, match="verify has no option"):
            list(checked_options("verify", {name: "x"}, paths))
    with pytest.raises(holdfast.InvalidArgument, match="reflect"):
        list(checked_options("replay", {"where": "reflect('java.lang.Runtime', 'getRuntime') is null"}, paths))


def test_a_server_says_how_to_make_an_administrator_while_there_is_none(tmp_path: Path) -> None:
    with ServedApart(tmp_path / "data", http_port=0, rpc_port="none") as served:
        pass
    assert "holdfast user add NAME --tag administrator" in served.said()
    from holdfast.broker.definitions import open_definitions

    with holdfast.open(tmp_path / "data") as store:
        open_definitions(store).users().add("ann", "secret", tags=("administrator",))
    with ServedApart(tmp_path / "data", http_port=0, rpc_port="none") as again:
        pass
    assert again.said().count("holdfast user add NAME") == 1
