"""The append-only log: blocks, segments, sparse index, roll, flush, recovery, retention, tailers."""

from holdfast.log.block import Block
from holdfast.log.inspection import Inspection
from holdfast.log.log import Log, LogStats, SegmentStats, TailerStats
from holdfast.log.policy import Flush, Retention, Roll
from holdfast.log.read_only_log import ReadOnlyLog
from holdfast.log.record import Damage, Headers, Message, Record
from holdfast.log.retention import Freed
from holdfast.log.settings import LogSettings
from holdfast.log.tailer import Tailer
from holdfast.log.verification import Verification

__all__ = [
    "Block",
    "Damage",
    "Flush",
    "Freed",
    "Headers",
    "Inspection",
    "Log",
    "LogSettings",
    "LogStats",
    "Message",
    "ReadOnlyLog",
    "Record",
    "Retention",
    "Roll",
    "SegmentStats",
    "Tailer",
    "TailerStats",
    "Verification",
]
