"""Validation of paths that users give: files and folders of this machine, never URLs."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

from holdfast.base.errors import InvalidArgument

__all__ = ["local_path"]

# At least two characters, so that `c:/data` is not a URL. `Path("s3://x")` is `s3:/x`: one slash is enough.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")


def local_path(given: str | os.PathLike[str], what: str = "a store") -> Path:
    """Return the path, or raise `InvalidArgument` if a URL was given: it would become a folder named `s3:`.

    `what` names the object in the error.
    """
    text = os.fspath(given)
    found = _URL.match(text) if isinstance(text, str) else None
    if found is None:
        return Path(given)
    scheme = found[1].lower()
    if scheme == "file":
        path = "/" + unquote(text[found.end() :])
        raise InvalidArgument(f"{text!r} is a URL: give the path of {what} itself, {path!r}")
    if scheme in ("http", "https"):
        raise InvalidArgument(
            f"{text!r} is a URL, and {what} must be on a disk of this machine. For a store that is served there use "
            "holdfast.connect(URL), or --url on the command line"
        )
    raise InvalidArgument(
        f"{text!r} is a URL, and {what} must be on a disk of this machine. Use a folder here, which may be mounted, "
        "and copy backups to object storage with a tool of your choice. A local folder of that name is "
        f"'./{text}'"
    )
