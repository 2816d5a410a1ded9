"""Location of a record by its sequence: segment, byte offset and content."""

from holdfast.base.errors import Corrupt, InvalidArgument
from holdfast.log.inspection import Inspection
from holdfast.log.layout import HEADER_SIZE
from holdfast.log.log import Log

__all__ = ["locate"]


def locate(log: Log, sequence: int) -> Inspection:
    """Return where a record is in its segment, and the record."""
    first, end = log.readable()
    if not first <= sequence < end:
        kept = f"holds {first} to {end - 1}" if end > first else "is empty"
        raise InvalidArgument(f"there is no record {sequence}: the log {log.name!r} {kept}")
    block = next(log.blocks(sequence, sequence + 1), None)
    record = next(log.read(sequence, sequence + 1), None)
    if block is None or record is None:
        where = f": {log.damage[-1]}" if log.damage else ""
        raise Corrupt(f"the record {sequence} of the log {log.name!r} cannot be read{where}")
    start = block.header.offset + HEADER_SIZE + block.header.columns_length
    holding = [row.name for row in log.segments() if row.first <= sequence][-1]
    found = log.inspect(start, holding)
    compressed = bool(found.details.get("compression"))
    # A compressed payload has no offset in the file, only its block has.
    at = start if compressed else start + block.offsets[sequence - block.sequence]
    return Inspection(found.path, at, "payload", found.details | {"sequence": sequence}, record)
