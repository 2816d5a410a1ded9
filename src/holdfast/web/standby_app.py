"""HTTP of a server that is a standby: health checks and metrics without a login, and nothing else."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.replica.standby_status import StandbyStatus

__all__ = ["WARM_LAG_S", "make_standby_app"]

WARM_LAG_S = 60.0
"""A standby whose copy is so much behind is not healthy: a takeover would have to fetch that first."""
_HELP = {
    "lag_seconds": "For how long there has been a later moment that the standby does not have.",
    "bytes": "Size of the moment that the standby has.",
    "fetched_bytes": "Bytes that the standby has fetched since its start.",
    "owner_quiet_seconds": "For how long the owner has not renewed its claim.",
    "epoch": "Epoch of the owner that the standby follows.",
    "warm": "1 if the standby has a whole moment, so that it can take over.",
    "up": "1 if the last attempt to follow the replica succeeded.",
}


def make_standby_app(status: Callable[[], StandbyStatus], lives: Callable[[], bool]) -> ASGIApp:
    """Return the application; `status` describes the standby, and `lives` says whether its thread does."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        code, kind, body = _answer(scope["path"], status(), is_alive=lives())
        if scope["method"] not in ("GET", "HEAD"):
            code, kind, body = _refusal(status())
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    return app


def _answer(path: str, now: StandbyStatus, *, is_alive: bool) -> tuple[int, bytes, bytes]:
    if path == "/health/live":
        reasons = [] if is_alive else ["the standby's thread has ended"]
        return _json(200 if is_alive else 503, {"live": is_alive, "reasons": reasons, "role": now.role})
    if path == "/health/ready":
        reasons = [f"this server is a standby: the owner is {now.owner or 'not known'}"]
        return _json(503, {"ready": False, "checks": _checks(now), "reasons": reasons, "warnings": [], **_shown(now)})
    if path == "/health/standby":
        checks = _checks(now)
        is_well = is_alive and all(checks.values())
        return _json(200 if is_well else 503, {"warm": is_well, "checks": checks, **_shown(now)})
    if path == "/metrics":
        values: dict[str, float] = {**asdict(now), "warm": now.is_warm, "up": now.error is None}
        lines = (
            f"# HELP holdfast_standby_{name} {help}\n# TYPE holdfast_standby_{name} gauge\n"
            f"holdfast_standby_{name} {float(values[name]):g}\n"
            for name, help in _HELP.items()
        )
        return 200, b"text/plain; version=0.0.4; charset=utf-8", "".join(lines).encode()
    return _refusal(now)


def _checks(now: StandbyStatus) -> dict[str, bool]:
    return {"copy": now.is_warm, "lag": now.lag_seconds < WARM_LAG_S, "bucket": now.error is None}


def _shown(now: StandbyStatus) -> dict[str, Any]:
    return {
        "role": now.role,
        "epoch": now.epoch,
        "moment": now.moment,
        "lag_seconds": now.lag_seconds,
        "bytes": now.bytes,
        "owner_quiet_seconds": now.owner_quiet_seconds,
        "takes_over": now.yields and now.is_warm,
    }


def _refusal(now: StandbyStatus) -> tuple[int, bytes, bytes]:
    text = "this server is a standby, and serves nothing before it takes over: use the owner"
    return _json(503, {"error": "standby", "message": text, "role": now.role})


def _json(code: int, content: dict[str, Any]) -> tuple[int, bytes, bytes]:
    return code, b"application/json", json.dumps(content).encode()
