"""Users with hashed passwords and tags, their permissions by regular expression, and authentication."""

import base64
import binascii
import hashlib
import hmac
import json
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.broker.errors import AccessRefused, NotAllowed, named

if TYPE_CHECKING:
    from argon2 import PasswordHasher

__all__ = [
    "ARGON2",
    "DEFAULT",
    "SHA256",
    "Cost",
    "Permission",
    "User",
    "UserCheck",
    "UserListener",
    "Users",
    "check_user_name",
    "imported_hash",
    "log_failed_login",
    "log_value",
    "login_refused",
    "tags_of",
]

logger = logging.getLogger("holdfast.broker")

ARGON2 = "argon2id"
"""The algorithm that hashes passwords here; salt and cost are part of the hash."""
SHA256 = "rabbit_password_hashing_sha256"
"""RabbitMQ's default algorithm."""
_IMPORTED = {SHA256: "sha256", "rabbit_password_hashing_sha512": "sha512"}
_SALT_BYTES = 4
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._@-]+")
NAME_MAX = 255
CHECKS_MAX = 100_000
"""Size limit of the cache of permission checks; it is cleared when full."""

DEFAULT = "guest"
"""The user that a new broker has from the start, and the password."""

Kind = Literal["configure", "write", "read"]


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one password check. The default takes some 50 ms of one core, and 32 MiB meanwhile."""

    memory_kib: int = 32 << 10
    passes: int = 2


@dataclass(frozen=True, slots=True)
class User:
    """A user. An empty hash allows no password, only a certificate."""

    kind: ClassVar[Literal["user"]] = "user"
    name: str
    password_hash: str = ""
    algorithm: str = ARGON2
    tags: tuple[str, ...] = ()
    """`administrator`, `monitoring`, `management`, `policymaker` or any other word."""

    def __repr__(self) -> str:
        """Return a text without the hash, which would end up in logs."""
        return f"User({self.name!r}, tags={self.tags!r})"


@dataclass(frozen=True, slots=True)
class Permission:
    """A user's permissions in a virtual host: patterns that are searched for in names of queues and exchanges."""

    kind: ClassVar[Literal["permission"]] = "permission"
    user: str
    vhost: str
    configure: str = ""
    write: str = ""
    read: str = ""


UserListener = Callable[[Sequence[tuple[User | Permission, bool]]], None]
"""Notified of changes before they are made: each is an object, and whether it exists from now on."""
UserCheck = Callable[[User], None]
"""Called with a user as it is and as it shall become, before the change; raises to refuse it."""


class Users:
    """All users and their permissions.

    Plain passwords are never stored. Patterns come from administrators, and Python's `re` can take exponential time
    over a bad one: names are bounded to 255 characters and results cached, but a pattern such as `(a+)+$` can still
    block a check. Threads: changes are made one at a time; reads may run concurrently with them and with each other.
    """

    def __init__(
        self,
        users: Iterable[User] = (),
        permissions: Iterable[Permission] = (),
        *,
        listener: UserListener | None = None,
        cost: Cost = Cost(),  # noqa: B008 - it never changes
        loopback_only: Iterable[str] = (DEFAULT,),
    ) -> None:
        self._users = {user.name: user for user in users}
        self._permissions = {(one.user, one.vhost): one for one in permissions}
        self._listener = listener
        self._cost = cost
        self._loopback_only = frozenset(loopback_only)
        self.changed: Callable[[], None] = lambda: None
        """Called when permissions change, so that cached permission checks can be dropped."""
        self._made_hasher: PasswordHasher | None = None
        self._nobody: str | None = None
        self._seen: dict[str, tuple[str, bytes]] = {}
        """By user: the hash that a password was verified against, and a keyed digest of that password."""
        self._default: tuple[str, bool] | None = None
        """Of the default user: the hash, and whether it is that of the default password."""
        self._seen_key = secrets.token_bytes(32)
        self._patterns: dict[tuple[str, str], dict[str, re.Pattern[str]]] = {}
        self._checks: dict[tuple[str, str, str, str], bool] = {}

    @classmethod
    def with_guest(cls, *, listener: UserListener | None = None, cost: Cost = Cost()) -> "Users":  # noqa: B008
        """Return a new broker's users: guest, password guest, with all permissions in `/`, from this machine only."""
        users = cls(listener=listener, cost=cost)
        users.add(DEFAULT, DEFAULT, tags=("administrator",))
        users.permit(DEFAULT, "/", ".*", ".*", ".*")
        return users

    def get(self, name: str) -> User:
        """Return the user of this name, or raise `NotFound`."""
        user = self._users.get(name)
        if user is None:
            raise NotFound(f"there is no user {name!r}; there are: {', '.join(sorted(self._users)) or 'none'}")
        return user

    def all(self) -> list[User]:
        """Return all users, by name."""
        return sorted(list(self._users.values()), key=lambda user: user.name)  # noqa: C414 - in one step

    def is_default(self, name: str) -> bool:
        """Whether this is the user `guest` with the password `guest`. Slow the first time: it checks a password."""
        user = self._users.get(DEFAULT)
        if user is None or name != DEFAULT:
            return False
        known = self._default
        if known is None or known[0] != user.password_hash:
            known = self._default = (user.password_hash, self._is_right(user, DEFAULT))
        return known[1]

    def add(self, name: str, password: str | None, *, tags: Iterable[str] = ()) -> User:
        """Add a user; without a password, only a certificate authenticates the user."""
        if name in self._users:
            raise InvalidArgument(f"there is a user {name!r} already: change the password or delete the user first")
        user = User(name, "" if password is None else self.hashed(password), ARGON2, tuple(tags))
        self._put(user)
        return user

    def put(self, user: User) -> bool:
        """Add a user, or replace the hash and tags of an existing one; return whether the user is new.

        Open connections stay open: AMQP checks a password only at login.
        """
        is_new = user.name not in self._users
        self._put(user)
        return is_new

    def delete(self, name: str) -> None:
        """Delete a user and all permissions of the user."""
        user = self.get(name)
        permissions = self.permissions(name)
        self._tell([*((one, False) for one in permissions), (user, False)])
        for one in permissions:
            del self._permissions[one.user, one.vhost]
        del self._users[name]
        self._seen.pop(name, None)
        self._forget_checks()

    def change_password(self, name: str, password: str | None) -> None:
        """Set another password for a user, or none."""
        hashed = "" if password is None else self.hashed(password)
        self._put(replace(self.get(name), password_hash=hashed, algorithm=ARGON2))

    def authenticate(self, name: str, password: str, remote_is_loopback: bool) -> User:
        """Return the user if the password is right and the user may connect from there; else raise 403.

        Slow: call it on another thread than the broker's, unless `remembers` is true. An unknown user takes as long as
        a wrong password. The reason is in the error, for `log_failed_login`, and is not sent to the client.
        """
        user = self._users.get(name)
        if not self._is_right(user, password):
            raise _refused(name, "bad-credentials", "PLAIN")
        assert user is not None
        if name in self._loopback_only and not remote_is_loopback:
            raise _refused(name, "not-from-loopback", "PLAIN")
        return user

    def external(self, common_name: str, remote_is_loopback: bool = False) -> User:
        """Return the user of a verified certificate or token; raise 403 if there is none.

        Raises 403 also if the user may connect only from this machine, and the client is elsewhere.
        """
        user = self._users.get(common_name)
        if user is None:
            raise _refused(common_name, "unknown-user", "EXTERNAL")
        if common_name in self._loopback_only and not remote_is_loopback:
            raise _refused(common_name, "not-from-loopback", "EXTERNAL")
        return user

    def permit(self, user: str, vhost: str, configure: str, write: str, read: str) -> Permission:
        """Set a user's permissions in a virtual host; `""` permits nothing, `.*` everything."""
        self.get(user)
        permission = Permission(user, vhost, configure, write, read)
        for pattern in (configure, write, read):
            _compiled(pattern)
        self._tell([(permission, True)])
        self._permissions[user, vhost] = permission
        self._forget_checks()
        return permission

    def forbid(self, user: str, vhost: str) -> None:
        """Revoke a user's permissions in a virtual host; it is not an error if there are none."""
        permission = self._permissions.get((user, vhost))
        if permission is not None:
            self._tell([(permission, False)])
            del self._permissions[user, vhost]
            self._forget_checks()

    def forget_vhost(self, vhost: str) -> None:
        """Drop the permissions in a deleted virtual host, without notifying the listener."""
        for key in [key for key in self._permissions if key[1] == vhost]:
            del self._permissions[key]
        self._forget_checks()

    def permissions(self, user: str | None = None, vhost: str | None = None) -> list[Permission]:
        """Return the permissions; with a user or a virtual host, only of that user and in that virtual host."""
        permissions = list(self._permissions.values())
        return [one for one in permissions if user in (None, one.user) and vhost in (None, one.vhost)]

    def check_vhost(self, user: str, vhost: str) -> None:
        """Raise 530 unless the user has any permission in the virtual host."""
        if (user, vhost) not in self._permissions:
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{user}'")

    def check(self, user: str, vhost: str, kind: Kind, what: Literal["queue", "exchange"], name: str) -> None:
        """Raise 403 unless the user may configure, write to or read from this queue or exchange."""
        # Patterns cannot name the default exchange by its empty name, so RabbitMQ gives it another for this purpose.
        name = "amq.default" if what == "exchange" and not name else name
        if not self.allowed(user, vhost, kind, name):
            raise AccessRefused(f"{kind} access to {named(what, name, vhost)} refused for user '{user}'")

    def allowed(self, user: str, vhost: str, kind: Kind, name: str) -> bool:
        """Whether the user's pattern for this kind of access matches the name; never for one over 255 characters."""
        question = (user, vhost, kind, name)
        checks = self._checks  # a change replaces the dict: a result computed before it is not cached
        answer = checks.get(question)
        if answer is None:
            if len(checks) >= CHECKS_MAX:
                self._checks = checks = {}
            answer = checks[question] = self._is_allowed(user, vhost, kind, name)
        return answer

    def hashed(self, password: str) -> str:
        """Return the hash of a password, as it is stored. Slow; raises `InvalidArgument` for an empty password."""
        if not password:
            raise InvalidArgument("a password must not be empty: give None for users who authenticate by certificate")
        return self._hasher().hash(password.encode("utf-8", "surrogatepass"))

    def restore(self, things: Iterable[User | Permission]) -> None:
        """Add or replace stored or imported users and permissions, without notifying the listener."""
        for thing in things:
            if isinstance(thing, User):
                self._users[thing.name] = thing
            else:
                self._permissions[thing.user, thing.vhost] = thing
        self._forget_checks()

    def _is_allowed(self, user: str, vhost: str, kind: Kind, name: str) -> bool:
        known = self._patterns
        permission = self._permissions.get((user, vhost))
        if permission is None or len(name) > NAME_MAX:
            return False
        patterns = known.get((user, vhost))
        if patterns is None:
            patterns = known[user, vhost] = {
                "configure": _compiled(permission.configure),
                "write": _compiled(permission.write),
                "read": _compiled(permission.read),
            }
        return patterns[kind].search(name) is not None

    def remembers(self, name: str, password: str) -> bool:
        """Whether this password was verified before and is still valid: then `authenticate` is fast."""
        user, seen = self._users.get(name), self._seen.get(name)
        # The same hash: a changed password invalidates the cached digest.
        if user is None or seen is None or seen[0] != user.password_hash:
            return False
        return hmac.compare_digest(seen[1], self._digest(password))

    def _digest(self, password: str) -> bytes:
        return hashlib.blake2b(password.encode("utf-8", "surrogatepass"), key=self._seen_key).digest()

    def _is_right(self, user: User | None, password: str) -> bool:
        if user is not None and self.remembers(user.name, password):
            return True
        # As in RabbitMQ, an empty password never authenticates, even if its hash matches.
        usable = user is not None and bool(user.password_hash) and bool(password)
        if usable and user is not None and user.algorithm == ARGON2:
            right = self._verified(user.password_hash, password)
        else:
            # The time taken must not reveal whether the user exists.
            self._verified(self._nobodys_hash(), password)
            right = usable and user is not None and _matches_imported(user, password)
        if right and user is not None:
            self._seen[user.name] = (user.password_hash, self._digest(password))
        return right

    def _verified(self, password_hash: str, password: str) -> bool:
        from argon2.exceptions import Argon2Error, InvalidHashError  # noqa: PLC0415 - only a server needs it

        try:
            return self._hasher().verify(password_hash, password.encode("utf-8", "surrogatepass"))
        except (Argon2Error, InvalidHashError):
            return False

    def _nobodys_hash(self) -> str:
        if self._nobody is None:
            self._nobody = self._hasher().hash(secrets.token_bytes(16))
        return self._nobody

    def _hasher(self) -> "PasswordHasher":
        if self._made_hasher is None:
            from argon2 import PasswordHasher  # noqa: PLC0415 - only a server needs it

            self._made_hasher = PasswordHasher(
                time_cost=self._cost.passes, memory_cost=self._cost.memory_kib, parallelism=1
            )
        return self._made_hasher

    def _put(self, user: User) -> None:
        check_user_name(user.name)
        self._tell([(user, True)])
        self._users[user.name] = user
        self._seen.pop(user.name, None)

    def _tell(self, changes: Sequence[tuple[User | Permission, bool]]) -> None:
        if self._listener is not None:
            self._listener(changes)

    def _forget_checks(self) -> None:
        self._checks, self._patterns = {}, {}
        self.changed()


def tags_of(value: Any) -> tuple[str, ...]:
    """Return tags from JSON: a list of texts, or one text with commas, as RabbitMQ wrote them before 3.9."""
    if value is None:
        return ()
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return tuple(value)
    raise InvalidArgument(f"tags must be a list of strings, or one comma-separated string, not {value!r}")


def check_user_name(name: str) -> None:
    """Raise `InvalidArgument` for an empty, too long or invalid name; existing users are not checked."""
    if not name or len(name) > NAME_MAX:
        raise InvalidArgument(f"a user's name must have 1 to {NAME_MAX} characters, not {len(name)}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"a user's name must be valid UTF-8: {name!r} is not") from None


def imported_hash(password_hash: str, algorithm: str) -> tuple[str, str]:
    """Validate a hash and its algorithm from definitions; raise `InvalidArgument` if they cannot be used."""
    if password_hash and algorithm in _IMPORTED:
        _salt_and_digest(password_hash, _IMPORTED[algorithm])
    elif password_hash and algorithm != ARGON2:
        known = ", ".join((*_IMPORTED, ARGON2))
        raise InvalidArgument(f"the password hash algorithm {algorithm!r} is not supported: use one of {known}")
    return password_hash, algorithm


def _matches_imported(user: User, password: str) -> bool:
    digest = _IMPORTED.get(user.algorithm)
    if digest is None:
        return False
    salt, expected = _salt_and_digest(user.password_hash, digest)
    return hmac.compare_digest(hashlib.new(digest, salt + password.encode("utf-8", "surrogatepass")).digest(), expected)


def _salt_and_digest(password_hash: str, digest: str) -> tuple[bytes, bytes]:
    """Decode RabbitMQ's hash: base64 of four bytes of salt, then the digest of salt and password."""
    try:
        raw = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidArgument("a password_hash is not base64: copy it unchanged from the export") from error
    if len(raw) != _SALT_BYTES + hashlib.new(digest).digest_size:
        raise InvalidArgument(
            f"a password_hash is not four bytes of salt and a {digest}: copy it unchanged from the export"
        )
    return raw[:_SALT_BYTES], raw[_SALT_BYTES:]


def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern. The empty pattern matches only the empty name; any other, anywhere in a name."""
    try:
        return re.compile(pattern or "^$")
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"the pattern {pattern!r} is not a regular expression: {error}") from error


def log_value(name: str) -> str:
    """Return a name as log lines write it: one that is not a plain word is quoted, with escapes for all but ASCII."""
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)


def log_failed_login(error: Exception, *, peer: object, protocol: str) -> None:
    """Log one line about a failed login: user, peer, protocol and reason.

    The user name comes from an unauthenticated client: `log_value` quotes and escapes it.
    """
    user, reason = getattr(error, "login", None) or ("", "refused")
    user = user[:NAME_MAX]
    peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else peer or "local"
    logger.warning(
        "login failed: user=%s peer=%s protocol=%s reason=%s",
        log_value(user),
        peer,
        protocol,
        reason,
        extra={"user": user, "peer": str(peer), "protocol": protocol, "reason": reason},
    )


def login_refused(user: str, reason: str, text: str) -> AccessRefused:
    """Return the error for a failed login, with what `log_failed_login` needs."""
    error = AccessRefused(text)
    error.login = (user, reason)
    return error


def _refused(name: str, reason: str, mechanism: str) -> AccessRefused:
    text = f"Login was refused using authentication mechanism {mechanism}. For details see the broker logfile."
    return login_refused(name, reason, text)
