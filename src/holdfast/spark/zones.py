"""Time zones by the names that Spark gives them, and times without a zone as a Spark session reads them."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from pyspark import TaskContext

from holdfast.base.errors import InvalidArgument

__all__ = ["moment_of", "session_zone", "task_moment"]

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


def session_zone(name: str) -> tzinfo:
    """The zone that a value of `spark.sql.session.timeZone` names: a region or an offset."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    if match := _OFFSET.fullmatch(name):
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such zone, or a name that cannot be one
        raise InvalidArgument(
            f"the time zone {name!r} of the Spark session is unknown here: give times with a zone, "
            "as 2026-01-31T12:00:00Z"
        ) from None


def task_moment(when: datetime) -> datetime:
    """The moment that a time without a zone means to the session whose task this is; outside of a task it is UTC.

    Spark hands the settings of a session to its tasks. A session that has not chosen a zone has that of its machine.
    """
    context = TaskContext.get()
    if context is None:
        return moment_of(when, UTC)
    name = context.getLocalProperty("spark.sql.session.timeZone")
    return when.astimezone(UTC) if name is None else moment_of(when, session_zone(name))


def moment_of(when: datetime, zone: tzinfo) -> datetime:
    """The moment in UTC; a time without a zone is one of `zone`."""
    return (when if when.tzinfo else when.replace(tzinfo=zone)).astimezone(UTC)
