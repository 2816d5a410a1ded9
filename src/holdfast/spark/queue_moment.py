"""The moment that the `messages` view of a queue shows: where its log and its journal end."""

from dataclasses import dataclass

from holdfast.base.clock import NS, Clock
from holdfast.log.consumer_offsets import place_of
from holdfast.log.log import Log
from holdfast.spark.message_states import DECODED_BYTES, DECODED_RECORDS
from holdfast.spark.partitions import DataLoss, Picture, Stretch, look, plan
from holdfast.spark.queue_events import NONE, portions, read_spans

__all__ = ["QueueMoment", "moment_of"]

_PATIENCE_S = 10.0
"""How long messages that the journal refers to may take to be in the log, while others arrive."""
_IDLE_S = 2.0
"""How long to wait for them if none arrives: a crash has lost them."""
_TRIES = 5
"""How often to begin again if retention drops a part of the journal meanwhile."""


@dataclass(frozen=True, slots=True)
class QueueMoment:
    """A queue at one moment: what tasks need to find the states of its messages.

    Messages from `end` on were put later, and do not exist yet at this moment. All events of the others up to it are in
    the journal before `journal_end`.
    """

    end: int
    now: int
    """The time: a message that is due later is delayed."""
    known_from: int
    """The journal has the whole history of the messages from here on."""
    journal_start: int
    journal_end: int
    journal: tuple[Stretch, ...]


def moment_of(queue: str, log: Log, journal: Log, clock: Clock, *, fail_on_data_loss: bool = True) -> QueueMoment:
    """Return the present moment of a queue, given its log and its journal, both open read-only.

    The log's end is taken first, then the journal's, which may refer to later messages: those belong to the moment,
    too. Under a weaker flush mode the log may show them a little later than the journal, and this waits for them.
    Reads the last ten seconds of the journal, and no more. Takes memory for each segment.
    """
    seen = log.readable()[1]
    picture, stretches = _journal_of(journal)
    if picture.end == 0 and log.positions.exists(place_of(queue)):  # a new queue has it a moment before its journal
        journal.wait_for(0, _IDLE_S)
        picture, stretches = _journal_of(journal)
        if picture.end == 0 and fail_on_data_loss:
            raise DataLoss(
                f"the journal of the queue {queue!r} is empty, but it had events: open the store once without "
                "read_only=True, which continues from the queue's last checkpoint; to read all messages as ready, use "
                "the option failOnDataLoss=false"
            )
    start, end = picture.start, picture.end
    touched = _touched(log, journal, seen, start, end)
    visible = _wait_for(log, touched, clock)
    first = journal.time_of(start) if 0 < start < end else None
    last = journal.time_of(end - 1) if start < end else None
    return QueueMoment(
        max(seen, min(touched, visible)),
        max(clock.time_ns(), last or 0),  # the clock may have been set back since
        0 if first is None else log.sequence_at(first),
        start,
        end,
        tuple(stretches),
    )


def _journal_of(journal: Log) -> tuple[Picture, list[Stretch]]:
    """Return the journal as it is now, and the stretches that hold it."""
    for _ in range(_TRIES):
        picture = look(journal, durable=False)
        stretches = plan(picture, picture.start, picture.end)
        if not stretches or stretches[0].start <= picture.start:
            return picture, stretches
    raise DataLoss(f"retention keeps dropping the beginning of the journal {journal.name!r}: read the queue again")


def _touched(log: Log, journal: Log, seen: int, start: int, end: int) -> int:
    """Return the end of the messages that events in the last part of the journal refer to.

    Events of messages from `seen` on came after them, so after the message before.
    """
    if start >= end:
        return 0
    since = (journal.time_of(end - 1) or 0) - int(_PATIENCE_S * NS)
    if seen > log.start and (last_put := log.time_of(seen - 1)) is not None:
        since = max(since, last_put)
    highest = 0
    first = max(start, journal.sequence_at(since, past_damage=False))
    blocks = journal.reader.blocks_between(first, end)
    pieces = ((block, first - block.sequence, end - block.sequence) for block in blocks)
    for portion in portions(pieces, DECODED_RECORDS, DECODED_BYTES):
        spans = read_spans(portion)
        if len(spans.start):
            own = spans.start != NONE
            highest = max(highest, int((spans.start + spans.count)[own].max(initial=0)), int(spans.upto.max()))
    return highest


def _wait_for(log: Log, end: int, clock: Clock) -> int:
    """Wait until the log shows the messages before `end`; return its end."""
    begin = idle_since = clock.monotonic()
    visible = log.readable()[1]
    while visible < end:
        moment = clock.monotonic()
        if moment - begin >= _PATIENCE_S or moment - idle_since >= _IDLE_S:
            break
        clock.sleep(0.01)
        before, visible = visible, log.readable()[1]
        if visible > before:
            idle_since = clock.monotonic()
    return visible
