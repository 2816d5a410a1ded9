"""Paths on the server's machine that a request may name: only those below the folders in `allowed_paths`.

A path is resolved first, with its symbolic links and `..`, and only the resolved one is used from then on. A user who
can write into an allowed folder could still replace a part of it by a link later: allow only the server's own folders.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from holdfast.web.responses import Refused

__all__ = ["AllowedPaths"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PATTERN = re.compile(r"[*?\[\]{}\\]")


class AllowedPaths:
    """The folders below which requests may read and write."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders = [Path(one).resolve() for one in folders]

    def check(self, text: str, what: str) -> Path:
        """Return the path with all links resolved; raise 403 unless it is below an allowed folder."""
        if _SCHEME.match(text):
            raise _refused(f"{what} is {text!r}: over HTTP only paths on the server's machine are accepted, not URLs")
        if not text.startswith("/") or "\0" in text:
            raise _refused(f"{what} is {text!r}: it must be an absolute path on the server's machine")
        found = _resolved(Path(text), what)
        if _PATTERN.search(str(found)):  # Spark would read it as a pattern
            raise _refused(f"{what} is {text!r}: over HTTP a path must not contain any of * ? [ ] {{ }} and backslash")
        if not self._is_below(found):
            allowed = ", ".join(map(str, self._folders)) or "none, as allowed_paths is not set"
            raise _refused(
                f"{what} is {text!r}, which is not below a folder that requests may use ({allowed}). The server's "
                "setting allowed_paths lists these folders; `holdfast` with --data has no such limit"
            )
        return found

    def check_source(self, text: str, what: str) -> str:
        """Check a path to read: a file, a folder, or a pattern with `*` and `?` in file names.

        Nothing that the path or the pattern matches may be a link to elsewhere.
        """
        fixed, pattern = text, ""
        if _PATTERN.search(text):
            fixed, _, pattern = text.rpartition("/")
            if _PATTERN.search(fixed) or set("[]{}\\") & set(pattern):
                raise _refused(f"{what} is {text!r}: over HTTP a pattern has only * and ?, after the last slash")
        found = self.check(fixed, what)
        try:
            self._check_links(found.glob(pattern) if pattern else [found], what)
        except OSError as error:
            raise _refused(f"{what} is {text!r}, and not all of it can be read: {error.strerror or error}") from error
        return str(found / pattern) if pattern else str(found)

    def _is_below(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self._folders)

    def _check_links(self, paths: Iterable[Path], what: str) -> None:
        left, seen = list(paths), set[Path]()
        while left:
            path = left.pop()
            target = _resolved(path, what)
            if not self._is_below(target):
                raise _refused(f"{str(path)!r} is a link to a target outside of the folders that requests may use")
            if target not in seen and target.is_dir():
                seen.add(target)
                left += [Path(one.path) for one in os.scandir(target) if one.is_symlink() or one.is_dir()]


def _resolved(path: Path, what: str) -> Path:
    try:
        return path.resolve()
    except (RuntimeError, OSError) as error:  # before Python 3.13, links in a circle are a RuntimeError
        raise _refused(f"{what}: the path {str(path)!r} cannot be resolved: {error}") from error


def _refused(reason: str) -> Refused:
    return Refused(403, "access_refused", reason)
