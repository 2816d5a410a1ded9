"""The Cap'n Proto server: Queueber's interface for its clients, and our own for any queue."""

from holdfast.rpc.auth import Access
from holdfast.rpc.server import RpcServer, RpcSettings

__all__ = ["Access", "RpcServer", "RpcSettings"]
