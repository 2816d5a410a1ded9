"""Named tailers over HTTP: they hold back retention, so creating one needs `configure`, and it has an owner."""

from tests.web.serving import Served

LOG = "/api/holdfast/logs/clicks"


def tailers(served: Served) -> dict[str, str | None]:
    return {one["name"]: one["owner"] for one in served.get(LOG)["tailers"]}


def test_who_may_only_read_a_log_cannot_hold_back_its_retention(served: Served) -> None:
    served.store.log("clicks").append_many([b"x"] * 10)
    served.add_user("reader", permissions=("", "", ".*"))
    for body in ({"position": 0}, {"position": 5}):
        assert served.ask("PUT", f"{LOG}/tailers/mine", body, user="reader").status == 403
    assert served.ask("DELETE", f"{LOG}/tailers/mine", user="reader").status == 403
    assert tailers(served) == {}
    with served.store.log("clicks").tailer("audit") as audit:
        audit.commit()
    assert served.ask("PUT", f"{LOG}/tailers/audit", {"position": 9}, user="reader").status == 403
    assert served.ask("DELETE", f"{LOG}/tailers/audit", user="reader").status == 403


def test_a_tailer_is_listed_with_who_made_it_and_removed_by_that_user(served: Served) -> None:
    served.store.log("clicks").append_many([b"x"] * 10)
    served.add_user("maker", permissions=("^clicks$", "", "^clicks$"))
    served.add_user("other", permissions=("^clicks$", "", "^clicks$"))
    assert served.ask("PUT", f"{LOG}/tailers/mine", {"position": 2}, user="maker").status == 204
    assert served.ask("PUT", f"{LOG}/tailers/mine", {"position": 4}, user="other").status == 204  # moved, not made
    with served.store.log("clicks").tailer("mine") as mine:  # a program goes on with it
        mine.read()
        mine.commit()
    with served.store.log("clicks").tailer("audit") as audit:
        audit.commit()
    assert served.ask("PUT", f"{LOG}/tailers/audit", {"position": 1}, user="other").status == 204
    assert tailers(served) == {"mine": "maker", "audit": None}
    users = served.site.broker.users
    served.site.on_broker(lambda: users.permit("maker", "/", "", "", ""))
    assert served.ask("PUT", f"{LOG}/tailers/mine", {"position": 0}, user="maker").status == 403
    assert served.ask("DELETE", f"{LOG}/tailers/audit", user="maker").status == 403
    assert served.ask("DELETE", f"{LOG}/tailers/mine", user="maker").status == 204
    assert tailers(served) == {"audit": None}
