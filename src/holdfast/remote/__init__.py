"""Client of a store that another process serves over HTTP, with the names of `holdfast.Store`."""

from holdfast.remote.address import Address
from holdfast.remote.errors import OutcomeUnknown, Refused, ServerFailed, Unreachable
from holdfast.remote.log import RemoteLog, RemoteTailer
from holdfast.remote.queue import RemoteQueue
from holdfast.remote.store import RemoteStore, connect

__all__ = [
    "Address",
    "OutcomeUnknown",
    "Refused",
    "RemoteLog",
    "RemoteQueue",
    "RemoteStore",
    "RemoteTailer",
    "ServerFailed",
    "Unreachable",
    "connect",
]
