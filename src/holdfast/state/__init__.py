"""State of queues and tables, derived from their logs: sorted bytes in column families, changed in transactions."""

from holdfast.state.column_families import FAMILIES, TABLE_FAMILIES
from holdfast.state.open_state import open_state, set_aside
from holdfast.state.overlay import OverlayState
from holdfast.state.rocks import RocksState
from holdfast.state.simulated import SimulatedState
from holdfast.state.state import State, Transaction

__all__ = [
    "FAMILIES",
    "TABLE_FAMILIES",
    "OverlayState",
    "RocksState",
    "SimulatedState",
    "State",
    "Transaction",
    "open_state",
    "set_aside",
]
