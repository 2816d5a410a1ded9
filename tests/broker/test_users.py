"""Users: logins, what they cost, where from, and what is permitted."""

import base64
import hashlib
import logging
from typing import Literal

import pytest
from argon2 import PasswordHasher

from holdfast import InvalidArgument, NotFound
from holdfast.broker.errors import AccessRefused, NotAllowed
from holdfast.broker.permissions import RULES, Operation, Permissions
from holdfast.broker.users import SHA256, Cost, Permission, User, Users, imported_hash, log_failed_login

CHEAP = Cost(memory_kib=8, passes=1)


@pytest.fixture
def users() -> Users:
    return Users.with_guest(cost=CHEAP)


def rabbit_hash(password: str, salt: bytes = b"\x90\x8d\xc6\x0a") -> str:
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def test_guest_comes_in_from_this_machine_only(users: Users) -> None:
    assert users.authenticate("guest", "guest", True).tags == ("administrator",)
    with pytest.raises(AccessRefused) as caught:
        users.authenticate("guest", "guest", False)
    assert caught.value.text == (
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
    )


def test_others_come_in_from_anywhere_with_the_right_password(users: Users) -> None:
    users.add("ann", "secret", tags=["monitoring"])
    assert users.authenticate("ann", "secret", False).name == "ann"
    for name, password in (("ann", "Secret"), ("ann", ""), ("nobody", "secret"), ("", ""), ("ann", "\ud800")):
        with pytest.raises(AccessRefused):
            users.authenticate(name, password, True)


@pytest.mark.parametrize("name", ["", "n" * 256, "\udcff"])
def test_a_name_that_is_none_is_refused(users: Users, name: str) -> None:
    with pytest.raises(InvalidArgument, match="a user's name must"):
        users.add(name, "secret")
    assert [user.name for user in users.all()] == ["guest"]


def test_the_reason_is_logged_and_the_password_is_not(users: Users, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(AccessRefused) as refused:
        users.authenticate("ann", "tell-nobody", True)
    log_failed_login(refused.value, peer=("203.0.113.7", 51234), protocol="amqp")
    assert "login failed: user=ann peer=203.0.113.7:51234 protocol=amqp reason=bad-credentials" in caplog.text
    assert "bad-credentials" not in str(refused.value)
    assert "tell-nobody" not in caplog.text


def test_a_password_is_kept_nowhere(users: Users) -> None:
    users.add("ann", "very-secret", tags=())
    users.authenticate("ann", "very-secret", True)
    assert "very-secret" not in repr(vars(users)) + str(users.get("ann").password_hash)
    assert users.get("ann").password_hash.startswith("$argon2id$")
    assert users.get("ann").password_hash not in repr(users.get("ann"))


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str | bytes]:
    """The passwords that are hashed to be compared."""
    found: list[str | bytes] = []
    verify = PasswordHasher.verify

    def noting(self: PasswordHasher, hash: str | bytes, password: str | bytes) -> Literal[True]:
        found.append(password)
        return verify(self, hash, password)

    monkeypatch.setattr(PasswordHasher, "verify", noting)
    return found


def test_who_came_in_once_comes_in_again_without_a_hash(verified: list[str | bytes]) -> None:
    users = Users(cost=CHEAP)
    users.add("ann", "secret")
    for _ in range(5):
        users.authenticate("ann", "secret", True)
    assert len(verified) == 1
    with pytest.raises(AccessRefused):
        users.authenticate("ann", "wrong", True)
    assert len(verified) == 2


@pytest.mark.parametrize("name", ["nobody", "known", "passwordless", "imported"])
def test_a_wrong_password_costs_one_hash_whoever_it_is(name: str, verified: list[str | bytes]) -> None:
    users = Users([User("imported", rabbit_hash("right"), SHA256)], cost=CHEAP)
    users.add("known", "right")
    users.add("passwordless", None)
    with pytest.raises(AccessRefused):
        users.authenticate(name, "wrong", True)
    assert len(verified) == 1


def test_a_changed_password_ends_the_old_one_at_once(users: Users) -> None:
    users.add("ann", "old")
    users.authenticate("ann", "old", True)
    users.change_password("ann", "new")
    users.authenticate("ann", "new", True)
    with pytest.raises(AccessRefused):
        users.authenticate("ann", "old", True)
    users.change_password("ann", None)
    with pytest.raises(AccessRefused):
        users.authenticate("ann", "new", True)


def test_an_imported_password_ends_the_old_one_too(users: Users) -> None:
    users.add("ann", "old")
    users.authenticate("ann", "old", True)
    users.restore([User("ann", rabbit_hash("new"), SHA256)])
    with pytest.raises(AccessRefused):
        users.authenticate("ann", "old", True)
    users.authenticate("ann", "new", True)


def test_a_deleted_user_is_gone_with_all_permissions(users: Users) -> None:
    users.add("ann", "secret")
    users.permit("ann", "/", ".*", ".*", ".*")
    users.authenticate("ann", "secret", True)
    assert users.allowed("ann", "/", "read", "q")
    users.delete("ann")
    assert not users.allowed("ann", "/", "read", "q")
    with pytest.raises(AccessRefused):
        users.authenticate("ann", "secret", True)
    users.add("ann", "secret")
    assert users.permissions("ann") == []


def test_a_certificate_names_the_user(users: Users) -> None:
    users.add("ann", None)
    assert users.external("ann").name == "ann"
    for name in ("nobody", "guest"):
        with pytest.raises(AccessRefused, match="mechanism EXTERNAL"):
            users.external(name)


def test_hashes_of_rabbitmq_let_in_whom_they_let_in_there() -> None:
    # The example of RabbitMQ's documentation: salt 908DC60A and the password test12.
    assert rabbit_hash("test12") == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    users = Users([User("ann", rabbit_hash("test12"), SHA256)], cost=CHEAP)
    for _ in range(2):
        assert users.authenticate("ann", "test12", False).name == "ann"
    with pytest.raises(AccessRefused):
        users.authenticate("ann", "test13", False)


def test_hashes_that_could_never_match_are_refused() -> None:
    for password_hash, algorithm in (("!!", SHA256), ("YWJj", SHA256), ("YWJj", "rabbit_password_hashing_md5")):
        with pytest.raises(InvalidArgument):
            imported_hash(password_hash, algorithm)
    assert imported_hash("", SHA256) == ("", SHA256)


@pytest.mark.parametrize(
    ("pattern", "name", "answer"),
    [
        (".*", "anything", True),
        (".*", "", True),
        ("", "anything", False),
        ("", "", True),
        ("orders", "my-orders-2", True),
        ("^orders", "my-orders", False),
        ("^(orders|bills)$", "bills", True),
        (".*", "x" * 256, False),
    ],
)
def test_a_pattern_is_searched_for_in_the_name(users: Users, pattern: str, name: str, answer: bool) -> None:
    users.add("ann", "secret")
    users.permit("ann", "/", "", pattern, "")
    for _ in range(2):
        assert users.allowed("ann", "/", "write", name) is answer
    assert not users.allowed("ann", "other", "write", name)


def test_kinds_are_apart_and_refused_in_rabbitmqs_words(users: Users) -> None:
    users.add("ann", "secret")
    users.permit("ann", "/", "", "^out", "^in")
    users.check("ann", "/", "read", "queue", "in-1")
    with pytest.raises(AccessRefused) as caught:
        users.check("ann", "/", "write", "queue", "in-1")
    assert caught.value.text == "ACCESS_REFUSED - write access to queue 'in-1' in vhost '/' refused for user 'ann'"


def test_the_default_exchange_has_a_name_for_patterns(users: Users) -> None:
    users.add("ann", "secret")
    users.permit("ann", "/", "", "^amq\\.default$", "")
    users.check("ann", "/", "write", "exchange", "")
    with pytest.raises(AccessRefused, match="write access to queue '' in vhost"):
        users.check("ann", "/", "write", "queue", "")


def test_a_change_of_permissions_counts_at_once(users: Users) -> None:
    users.add("ann", "secret")
    with pytest.raises(NotAllowed, match="access to vhost '/' refused for user 'ann'"):
        users.check_vhost("ann", "/")
    users.permit("ann", "/", "", "", "")
    users.check_vhost("ann", "/")
    assert not users.allowed("ann", "/", "read", "q")
    users.permit("ann", "/", "", "", "q")
    assert users.allowed("ann", "/", "read", "q")
    users.forbid("ann", "/")
    assert not users.allowed("ann", "/", "read", "q")


def test_what_makes_no_sense_is_refused_and_changes_nothing(users: Users) -> None:
    with pytest.raises(InvalidArgument, match="not a regular expression"):
        users.permit("guest", "/", "(", "", "")
    assert users.permissions("guest") == [Permission("guest", "/", ".*", ".*", ".*")]
    with pytest.raises(InvalidArgument, match="already"):
        users.add("guest", "other")
    for name, password in (("", "x"), ("x" * 256, "x"), ("ann", "")):
        with pytest.raises(InvalidArgument):
            users.add(name, password)
    with pytest.raises(NotFound, match="there is no user 'ann'; there are: guest"):
        users.permit("ann", "/", "", "", "")


def test_the_listener_hears_of_each_change_before_it_is_made() -> None:
    told: list[tuple[object, bool]] = []
    users = Users(listener=told.extend, cost=CHEAP)
    ann = users.add("ann", "secret")
    permission = users.permit("ann", "/", "", "", "")
    users.delete("ann")
    assert told == [(ann, True), (permission, True), (permission, False), (ann, False)]


@pytest.mark.parametrize("operation", [one for one, rule in RULES.items() if rule.resource in ("log", "table")])
def test_administrators_read_what_is_the_servers_own_and_nobody_changes_it(users: Users, operation: Operation) -> None:
    users.add("boss", "secret", tags=["administrator"])
    permissions = Permissions(users)
    if operation.name.endswith(("_LOOK", "_READ")):
        permissions.check("boss", operation, "holdfast.topology", tags=("administrator",))
    else:
        with pytest.raises(AccessRefused, match="belongs to the server and cannot be changed"):
            permissions.check("boss", operation, "holdfast.topology", tags=("administrator",))
