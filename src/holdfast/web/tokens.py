"""API tokens: each authenticates a user until it expires; only a digest of it is stored."""

import hashlib
import hmac
import logging
import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.base.checked_json import decode_checked, encode_checked
from holdfast.base.clock import Clock, SystemClock
from holdfast.base.errors import Corrupt, InvalidArgument, NotFound, StorageError

__all__ = ["PREFIX", "Token", "Tokens"]

logger = logging.getLogger("holdfast.web")

PREFIX = "hf_"
FILE = "tokens.json"
_NS = 1_000_000_000
_NAME_MAX = 100
LIFETIME_MAX_S = 3660 * 86_400.0
SESSIONS_MAX = 100
"""Sessions of one user: one more ends the oldest."""
TOKENS_MAX = 1000
"""Tokens of one user: one more is rejected."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token, without its secret."""

    id: str
    name: str
    user: str
    digest: str
    credential: str
    """A digest of the user's password hash: a new password ends all tokens of a user."""
    created_at: int
    expires_at: int
    session: bool = False
    """Whether a login created it; sessions are not listed with the other tokens."""


class Tokens:
    """The tokens of a store, kept in `tokens.json`, which only its owner can read. Threads: any."""

    def __init__(self, folder: Path, credential_of: Callable[[str], str | None], clock: Clock | None = None) -> None:
        self._path = folder / FILE
        self._credential_of = credential_of
        """Returns a user's password hash, which must not change while a token is valid; None for an unknown user."""
        self._clock = clock or SystemClock()
        self._guard = threading.Lock()
        self._tokens: dict[str, Token] = {}
        if self._path.exists():
            try:
                for one in decode_checked(self._path.read_bytes())["tokens"]:
                    token = Token(**one)
                    self._tokens[token.id] = token
            except (ValueError, KeyError, TypeError) as error:
                raise Corrupt(
                    f"{str(self._path)!r} cannot be read ({error}): move it away, and create the tokens again",
                    str(self._path),
                ) from error

    def make(
        self, user: str, name: str, lifetime_s: float, *, session: bool = False, until: int | None = None
    ) -> tuple[Token, str]:
        """Create a token; return it and its text, which is shown once and stored nowhere.

        It expires after its lifetime or, if that is earlier, at `until`. It is on disk when this returns; only a
        session is valid even if the file cannot be written. A user's oldest session ends when there are too many.
        """
        if not name or len(name) > _NAME_MAX:
            raise InvalidArgument(f"a token needs a name of 1 to {_NAME_MAX} characters")
        if not 0 < lifetime_s <= LIFETIME_MAX_S:
            raise InvalidArgument(
                f"a token's lifetime cannot be {lifetime_s:g} seconds: use more than 0, and up to ten years"
            )
        credential = self._credential_of(user)
        if credential is None:
            raise NotFound(f"there is no user {user!r}")
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        now = self._clock.time_ns()
        end = now + round(lifetime_s * _NS)
        end = end if until is None else min(end, until)
        token = Token(id, name, user, _digest(secret), _digest(credential), now, end, session=session)
        with self._guard:
            others = dict(self._tokens)
            alike = [one for one in others.values() if one.user == user and one.session == session]
            if session:
                for old in sorted(alike, key=lambda one: one.created_at)[: max(0, len(alike) - SESSIONS_MAX + 1)]:
                    del others[old.id]
            elif sum(one.expires_at > now for one in alike) >= TOKENS_MAX:
                raise InvalidArgument(f"{user!r} has {TOKENS_MAX} tokens already: revoke unused ones")
            # The operator of a full disk must be able to log in: a session is valid without the file.
            self._keep({**others, id: token}, needed=not session)
        return token, f"{PREFIX}{id}_{secret}"

    def find(self, text: str) -> Token | None:
        """Return the token with this text, if it is valid; else None."""
        id, _, secret = text.removeprefix(PREFIX).partition("_")
        token = self._tokens.get(id)
        # Always compared, so that the time does not reveal whether the id exists.
        right = hmac.compare_digest(_digest(secret), token.digest if token is not None else _digest(""))
        if token is None or not right or not text.startswith(PREFIX) or self._clock.time_ns() >= token.expires_at:
            return None
        credential = self._credential_of(token.user)
        return token if credential is not None and _digest(credential) == token.credential else None

    def of(self, user: str | None) -> list[Token]:
        """Return the unexpired tokens of a user (or of all users), oldest first, without sessions."""
        now = self._clock.time_ns()
        tokens = [
            one
            for one in self._tokens.values()
            if user in (None, one.user) and not one.session and one.expires_at > now
        ]
        return sorted(tokens, key=lambda one: one.created_at)

    def remove(self, id: str, user: str | None) -> None:
        """Revoke a token of this user (or of any user); raise `NotFound` if there is none.

        It is revoked at once, even if the file cannot be written, which raises `StorageError`.
        """
        with self._guard:
            token = self._tokens.get(id)
            if token is None or user not in (None, token.user):
                raise NotFound(f"there is no token {id!r}")
            left = {one: other for one, other in self._tokens.items() if one != id}
            self._tokens = left  # even if the file cannot be written: a token is revoked for a reason
            self._keep(left)

    def _keep(self, tokens: dict[str, Token], *, needed: bool = True) -> None:
        now = self._clock.time_ns()
        alive = {id: token for id, token in tokens.items() if token.expires_at > now}
        try:
            self._write(alive)
        except OSError as error:
            if needed:
                raise StorageError(
                    f"{str(self._path)!r} cannot be written ({error.strerror or error}): free some space, and try again"
                ) from error
            logger.warning("tokens not written, new sessions end with the server: path=%s error=%s", self._path, error)
        self._tokens = alive

    def _write(self, alive: dict[str, Token]) -> None:
        content = encode_checked({"tokens": [asdict(token) for token in alive.values()]})
        temporary = self._path.with_name(f"{FILE}.{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)


def _digest(secret: str) -> str:
    # One round is enough: the input is 256 random bits, or a hash.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
