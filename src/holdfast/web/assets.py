"""Static files of the management page, read once from the package; no other files are served."""

import functools
import hashlib
from importlib import resources

from holdfast.web.responses import Refused
from holdfast.web.routes import Call, Media, Needs, Reply, Routes

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
    """Return the page's files by name: content, media type and ETag."""
    found = {}
    for one in resources.files("holdfast.web").joinpath("page").iterdir():
        ending = one.name.rpartition(".")[2]
        if one.is_file() and ending in _MEDIA:
            content = one.read_bytes()
            found[one.name] = content, _MEDIA[ending], f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    return found


@asset_routes.get(
    "/", needs=Needs.NOTHING, says="Serve the management page.", answer=Media("text/html"), also={304: None}
)
def index(call: Call) -> Reply[None]:
    """Return the page itself."""
    return _sent(call, "index.html")


@asset_routes.get(
    "/page/{file}",
    needs=Needs.NOTHING,
    says="Serve a file of the management page.",
    answer=Media(*(one.partition(";")[0] for one in _MEDIA.values())),
    also={304: None},
)
def asset(call: Call) -> Reply[None]:
    """Return a script, a style sheet or an image."""
    return _sent(call, call.path["file"])


def _sent(call: Call, name: str) -> Reply[None]:
    known = _files().get(name)
    if known is None:
        raise Refused(404, "not_found", f"the page has no file {name!r}")
    content, media, tag = known
    headers = {"Cache-Control": "no-cache", "ETag": tag}
    if call.headers.get("if-none-match") == tag:
        return Reply(status=304, headers=headers, media=media, raw=b"")
    return Reply(headers=headers, media=media, raw=content)
