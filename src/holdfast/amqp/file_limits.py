"""The division of the process's open files: half for the store, the rest for the connections of each protocol.

One in eight open files may be the segment of a log that is written, which has two more files open (base/open_files.py):
that is three eighths. The server itself, RocksDB, pipelines and backups take the rest of the store's half.
"""

from typing import NamedTuple

from holdfast.amqp.settings import Settings
from holdfast.base.open_files import descriptor_limit

__all__ = ["Shares", "clients_allowed", "shares_of"]

_STORE_LEAST = 96
"""Files of the store and the server, without those of logs: 60 were counted."""
_CLIENTS_LEAST = 8
_HTTP_SHARE, _RPC_SHARE = 8, 16
_SHARE_MAX = 1000
"""Connections that HTTP and Cap'n Proto get at most, unless a setting gives more."""


class Shares(NamedTuple):
    """How many connections of each protocol may be open."""

    amqp: int
    http: int
    http_per_address: int
    rpc: int


def clients_allowed() -> int:
    """Return how many connections all protocols may have open together."""
    files = descriptor_limit()
    return max(_CLIENTS_LEAST, files - max(files // 2, files * 3 // 8 + _STORE_LEAST))


def shares_of(settings: Settings) -> Shares:
    """Return how many connections each protocol may have open. AMQP gets what HTTP and Cap'n Proto cannot take."""
    files, clients = descriptor_limit(), clients_allowed()
    http = min(settings.http_connections or min(_SHARE_MAX, files // _HTTP_SHARE), clients // 2)
    rpc = min(settings.rpc_connections or min(_SHARE_MAX, files // _RPC_SHARE), clients // 4)
    has_http = settings.http_port is not None or settings.https_port is not None
    left = clients - (http if has_http else 0) - (rpc if settings.rpc_port is not None else 0)
    return Shares(
        amqp=min(settings.connection_max, left),
        http=max(1, http),
        http_per_address=settings.http_connections_per_address or max(1, http // 2),
        rpc=max(1, rpc),
    )
