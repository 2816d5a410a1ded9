"""Address and credentials of a server, parsed from one URL and explicit arguments."""

from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote, unquote, urlsplit

from holdfast.base.errors import InvalidArgument

__all__ = ["Address"]

_PORTS = {"http": 80, "https": 443}
_GUEST = "guest"


@dataclass(frozen=True, slots=True)
class Address:
    """A server, as in `http://user:password@host:15672/?vhost=/`. A token takes precedence over a user."""

    scheme: str
    host: str
    port: int
    path: str = ""
    """The path prefix before `/api`, if a proxy serves the server under one."""
    vhost: str = "/"
    user: str = _GUEST
    password: str = field(default=_GUEST, repr=False)
    token: str | None = field(default=None, repr=False)

    @classmethod
    def parse(
        cls,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        vhost: str | None = None,
    ) -> "Address":
        """Parse a URL; explicit arguments take precedence over its parts."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _no_address(url) from error
        if parts.scheme not in _PORTS or not host:
            raise _no_address(url)
        # An @ after the host comes from a password with a slash, which must be written as %2F.
        if parts.fragment or "@" in parts.path or any(ord(character) <= 0x20 for character in url):
            raise _no_address(url)
        if token is not None and not (token.isascii() and token.isprintable() and token and " " not in token):
            raise InvalidArgument("this is not a token: it must be hf_ and characters of A-Z, a-z, 0-9, - and _")
        asked = parse_qs(parts.query, keep_blank_values=True)
        if unknown := asked.keys() - {"vhost"}:
            raise InvalidArgument(
                f"unknown parameter {min(unknown)!r} in the URL of a server: only ?vhost=NAME is allowed"
            )
        if user is None:
            user = _GUEST if parts.username is None else unquote(parts.username)
            if password is None:
                password = _GUEST if parts.username is None else unquote(parts.password or "")
        return cls(
            scheme=parts.scheme,
            host=host,
            port=_PORTS[parts.scheme] if port is None else port,
            path=parts.path.rstrip("/"),
            vhost=vhost if vhost is not None else asked.get("vhost", ["/"])[-1],
            user=user,
            password=password or "",
            token=token,
        )

    @property
    def is_secure(self) -> bool:
        """Whether the connection uses TLS."""
        return self.scheme == "https"

    def __str__(self) -> str:
        """Return the URL without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        vhost = "" if self.vhost == "/" else f"?vhost={quote(self.vhost, safe='')}"
        return f"{self.scheme}://{host}{port}{self.path}{'/' if vhost else ''}{vhost}"


def _no_address(url: str) -> InvalidArgument:
    # The text before an @ may be a password, and errors end up in logs.
    shown = url if "@" not in url else f"...@{url.rpartition('@')[2]}"
    return InvalidArgument(f"{shown!r} is not the URL of a server: write http://host:15672 or https://host:15671")
