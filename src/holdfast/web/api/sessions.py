"""API routes for login, logout, the current user, and tokens for programs."""

import asyncio
from functools import partial

import anyio.to_thread

from holdfast.base.errors import InvalidArgument
from holdfast.base.units import iso_time, parse_duration
from holdfast.broker.errors import AccessRefused
from holdfast.broker.users import log_failed_login
from holdfast.web.api.response_types import LoginResult, NewToken, TokenJson, Tokens, WhoAmI
from holdfast.web.auth import WRONG_LOGIN
from holdfast.web.request_schema import TEXT, body
from holdfast.web.responses import NotAuthenticated
from holdfast.web.routes import Call, Needs, Reply, Routes
from holdfast.web.tokens import Token

__all__ = ["session_routes"]

session_routes = Routes("sessions")
_PREFIX = "/api/holdfast"


@session_routes.post(
    f"{_PREFIX}/login",
    needs=Needs.NOTHING,
    says="Log in; returns a session token.",
    takes=body("username", "password", username=TEXT, password=TEXT),
)
async def login(call: Call) -> LoginResult:
    """Create a session for a user with the right password. A failed login is logged, and delayed by `login_delay`."""
    name, password = call.field("username", str), call.field("password", str)
    site = call.site
    try:
        user = await anyio.to_thread.run_sync(
            site.broker.users.authenticate, name, password, call.who.is_loopback, limiter=site.logins
        )
    except AccessRefused as error:
        log_failed_login(error, peer=call.who.peer, protocol="http")
        await asyncio.sleep(site.settings.login_delay)
        raise NotAuthenticated(WRONG_LOGIN, ask=False) from error
    make = partial(site.tokens.make, user.name, "page", site.settings.session, session=True)
    token, text = await anyio.to_thread.run_sync(make)
    return {
        "name": user.name,
        "tags": list(user.tags),
        "token": text,
        "expires_at": token.expires_at,
        "expires_time": iso_time(token.expires_at),
    }


@session_routes.post(f"{_PREFIX}/logout", needs=Needs.USER, says="Revoke the token of this request.")
def logout(call: Call) -> None:
    """Revoke the token of this request; with a password there is nothing to revoke."""
    if call.who.token is not None:
        call.site.tokens.remove(call.who.token.id, call.who.name)


@session_routes.get(f"{_PREFIX}/whoami", needs=Needs.USER, says="Show the current user.")
def whoami(call: Call) -> WhoAmI:
    """Return the user, and the expiry of the token if the request has one."""
    token = call.who.token
    until = None if token is None else token.expires_at
    return {
        "name": call.who.name,
        "tags": list(call.who.tags),
        "expires_at": until,
        "expires_time": iso_time(until),
    }


@session_routes.get(
    f"{_PREFIX}/tokens", needs=Needs.USER, says="List your tokens; for administrators, those of all users."
)
def tokens(call: Call) -> Tokens:
    """Return the caller's tokens, or for an administrator all, without their secrets and without sessions."""
    return {"tokens": [_shown(token) for token in call.site.tokens.of(_whose(call))]}


@session_routes.post(
    f"{_PREFIX}/tokens",
    needs=Needs.USER,
    says="Create a token with your permissions; its text is returned only once.",
    takes=body("name", name=TEXT, lifetime={"description": "Seconds, or text such as 30d, which is the default."}),
    status=201,
)
def make_token(call: Call) -> Reply[NewToken]:
    """Create a token with the caller's permissions; its text is returned only here.

    A token created with another token cannot outlive it. After a login with a password any lifetime is possible.
    """
    given = call.field("lifetime", (int, float, str), None)
    lifetime = "30d" if given is None else given
    seconds = parse_duration(lifetime).total_seconds() if isinstance(lifetime, str) else float(lifetime)
    maker = call.who.token
    until = None
    if (
        maker is not None and not maker.session
    ):  # a session was created with a password; the holder of a token need not know one
        until = maker.expires_at
        if given is not None and call.site.clock.time_ns() + seconds * 1e9 > until:
            raise InvalidArgument(
                f"the token {maker.name!r} of this request expires {iso_time(maker.expires_at)}, and the new token "
                "cannot outlive it: choose a shorter lifetime, or authenticate with a password"
            )
    token, text = call.site.tokens.make(call.who.name, call.field("name", str), seconds, until=until)
    return Reply({**_shown(token), "token": text}, 201)


@session_routes.delete(f"{_PREFIX}/tokens/{{id}}", needs=Needs.USER, says="Revoke a token.")
def remove_token(call: Call) -> None:
    """Revoke a token of the caller or, for an administrator, of any user."""
    call.site.tokens.remove(call.path["id"], _whose(call))


def _whose(call: Call) -> str | None:
    """Return the user whose tokens the caller may manage; None for all users.

    Administrators manage all, except the default user with its default password.
    """
    return None if call.who.is_operator else call.who.name


def _shown(token: Token) -> TokenJson:
    return {
        "id": token.id,
        "name": token.name,
        "user": token.user,
        "created_at": token.created_at,
        "created_time": iso_time(token.created_at),
        "expires_at": token.expires_at,
        "expires_time": iso_time(token.expires_at),
    }
