"""What the registries of a store share."""

from dataclasses import dataclass
from pathlib import Path

from holdfast.base.clock import Clock
from holdfast.base.confirm_gate import ConfirmGate
from holdfast.base.files import Files
from holdfast.base.metrics import Registry
from holdfast.disk_reserve import Reserve
from holdfast.log.part_cache import PartCache
from holdfast.log.policy import Retention
from holdfast.store_background import StoreBackground
from holdfast.store_guard import StoreGuard
from holdfast.store_layout import StoreLayout

__all__ = ["StoreContext"]


@dataclass(frozen=True, slots=True)
class StoreContext:
    """The folder of an open store, the lock of its registries, its background threads and its reserve of disk space."""

    path: Path
    read_only: bool
    files: Files
    clock: Clock
    metrics: Registry
    guard: StoreGuard
    layout: StoreLayout
    background: StoreBackground
    reserve: Reserve
    gate: ConfirmGate
    """Where calls wait for the replica."""
    parts: PartCache
    """Where records are read that are only in the bucket of the replica."""
    local_retention: Retention | None = None
    """What stays on the local disk of logs without a setting of their own."""
