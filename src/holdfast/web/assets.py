"""Where do the files of the page come from? From the package, read once; nothing else is ever served as a file."""

import functools
import hashlib
from importlib import resources

from holdfast.web.answers import Refused
from holdfast.web.routes import Call, Needs, Reply, Routes

__all__ = ["asset_routes"]

_MEDIA = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
}

asset_routes = Routes("page")


@functools.cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """By name: what is in it, what kind it is, and a tag that changes with it."""
    found = {}
    for one in resources.files("holdfast.web").joinpath("page").iterdir():
        ending = one.name.rpartition(".")[2]
        if one.is_file() and ending in _MEDIA:
            content = one.read_bytes()
            found[one.name] = content, _MEDIA[ending], f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    return found


@asset_routes.get("/", needs=Needs.NOTHING, says="The management page.")
def index(call: Call) -> Reply:
    """The page itself."""
    return _sent(call, "index.html")


@asset_routes.get("/page/{file}", needs=Needs.NOTHING, says="A file of the page.")
def asset(call: Call) -> Reply:
    """A script, a style or a picture."""
    return _sent(call, call.path["file"])


def _sent(call: Call, name: str) -> Reply:
    known = _files().get(name)
    if known is None:
        raise Refused(404, "not_found", f"the page has no file {name!r}")
    content, media, tag = known
    headers = {"Cache-Control": "no-cache", "ETag": tag}
    if call.headers.get("if-none-match") == tag:
        return Reply(status=304, headers=headers, media=media, raw=b"")
    return Reply(headers=headers, media=media, raw=content)
