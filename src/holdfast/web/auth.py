"""Authentication of HTTP requests by password or token, and protection against cross-site requests."""

import base64
import binascii
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.broker.errors import AccessRefused
from holdfast.web.responses import NotAuthenticated, Refused
from holdfast.web.routes import Needs

if TYPE_CHECKING:
    from holdfast.broker.users import Users
    from holdfast.web.tokens import Token, Tokens

__all__ = [
    "MAKE_ONE",
    "WRONG_LOGIN",
    "Caller",
    "caller_of",
    "check_host",
    "check_needs",
    "check_same_site",
    "is_loopback",
    "is_remembered",
]

_MANAGES = frozenset(("administrator", "monitoring", "policymaker", "management"))
_SEES_ALL = frozenset(("administrator", "monitoring"))
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
_CROSS_SITE = "cross-site request rejected: pages of other sites cannot change anything here"
WRONG_LOGIN = "wrong user name or password, or the user may log in only from the server's machine"


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of a request. On routes that need no login the name is empty, and there are no tags."""

    name: str
    tags: tuple[str, ...] = ()
    is_loopback: bool = False
    token: "Token | None" = None
    peer: str = ""
    """Address and port, on routes that need no login."""
    is_default: bool = False
    """Whether this is the default user with its default password, which is public."""

    @property
    def is_administrator(self) -> bool:
        """Whether the caller has the tag administrator."""
        return "administrator" in self.tags

    @property
    def is_operator(self) -> bool:
        """Whether the caller may also make the server read and write files and run Spark."""
        return self.is_administrator and not self.is_default

    @property
    def sees_all(self) -> bool:
        """Whether the caller sees all virtual hosts, logs and tables: tag monitoring or administrator."""
        return not _SEES_ALL.isdisjoint(self.tags)

    @property
    def manages(self) -> bool:
        """Whether the caller has a management tag, which routes that need a LOGIN require."""
        return not _MANAGES.isdisjoint(self.tags)


MAKE_ONE = (
    "anybody on this machine can log in with it. Stop the server and add an administrator: "
    "holdfast user add NAME --tag administrator --data FOLDER"
)
"""The advice in errors that the default user gets."""


def caller_of(headers: Mapping[str, str], users: "Users", tokens: "Tokens", *, loopback: bool) -> Caller:
    """Authenticate a request by its Authorization header; raise 401 if that fails.

    A password that was not verified before takes some 50 ms: do not call this on an event loop then.
    """
    scheme, _, value = headers.get("authorization", "").partition(" ")
    # Requests by scripts must not open the browser's own login dialog.
    ask = headers.get("sec-fetch-mode", "navigate") == "navigate"
    match scheme.lower():
        case "":
            raise NotAuthenticated("authentication required: use Basic credentials or a Bearer token", ask=ask)
        case "basic":
            name, colon, password = _decoded(value).partition(":")
            if not colon:
                text = "malformed Basic credentials in the Authorization header"
                raise NotAuthenticated(text, ask=ask, login=("", "malformed"))
            try:
                user = users.authenticate(name, password, loopback)
            except AccessRefused as error:
                text = WRONG_LOGIN
                raise NotAuthenticated(text, ask=ask, login=error.login) from error
            return Caller(user.name, user.tags, loopback, is_default=users.is_default(user.name))
        case "bearer":
            token = tokens.find(value.strip())
            if token is None:
                text = "the token is unknown, expired or revoked: create another one, or log in"
                raise NotAuthenticated(text, ask=False, login=("", "bad-token"))
            try:
                user = users.external(token.user, loopback)
            except AccessRefused as error:
                text = "the token's user may log in only from the server's machine"
                raise NotAuthenticated(text, ask=False, login=error.login) from error
            return Caller(user.name, user.tags, loopback, token, is_default=users.is_default(user.name))
    raise NotAuthenticated(f"unsupported authentication scheme {scheme[:20]!r}: use Basic or Bearer", ask=ask)


def is_remembered(headers: Mapping[str, str], users: "Users") -> bool:
    """Whether these credentials were verified before, so that checking them again is fast."""
    name, _, password = _decoded(headers.get("authorization", "").partition(" ")[2]).partition(":")
    return users.remembers(name, password)


def check_needs(who: Caller, needs: Needs) -> None:
    """Raise 403 unless the caller has what a route needs."""
    lacks = {
        Needs.LOGIN: not who.manages and "one of the tags management, policymaker, monitoring, administrator",
        Needs.MONITORING: not who.sees_all and "the tag monitoring or administrator",
        Needs.ADMINISTRATOR: not who.is_administrator and "the tag administrator",
        Needs.OPERATOR: not who.is_administrator and "the tag administrator",
    }.get(needs)
    if needs is Needs.OPERATOR and who.is_default:
        raise Refused(403, "access_refused", f"{who.name!r} may not do this with its default password: {MAKE_ONE}")
    if lacks:
        raise Refused(403, "access_refused", f"the user {who.name!r} lacks {lacks}")


def check_same_site(method: str, headers: Mapping[str, str]) -> None:
    """Raise 403 for a change that another site's page requests.

    There are no cookies, but a browser stores Basic credentials and would send them along.
    """
    if method in SAFE:
        return
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise Refused(403, "cross_site", _CROSS_SITE)
    origin = headers.get("origin")
    if origin is not None and _place(origin) != (headers.get("host", "").lower() or None):
        raise Refused(403, "cross_site", _CROSS_SITE)


def check_host(headers: Mapping[str, str], allowed: frozenset[str]) -> None:
    """Raise 421 for a Host header with an unknown name (DNS rebinding).

    A site can make a name of its own resolve to this machine; its scripts would then count as same-origin.
    """
    host = headers.get("host", "")
    try:
        name = (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        raise Refused(400, "bad_request", "malformed Host header") from None
    if not name or name == "localhost" or name.endswith(".localhost") or name in allowed:
        return
    try:
        ipaddress.ip_address(name.split("%")[0])
    except ValueError:
        raise Refused(421, "unknown_host", f"unknown Host header {name!r}: add it to http_hosts") from None


def is_loopback(address: str) -> bool:
    """Whether an address is a loopback address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _place(origin: str) -> str:
    """Return name and port of an origin; empty if it is opaque."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value.strip(), validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return ""
