"""Time zones by the names that Spark gives them, and times without a zone as a Spark session reads them."""

import re
from datetime import MINYEAR, UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from pyspark import TaskContext

from holdfast.base.errors import InvalidArgument

__all__ = ["moment_of", "session_zone", "task_moment"]

_SHORT = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""Java's `ZoneId.SHORT_IDS`, which Spark accepts. Some differ from other systems: IST is India's."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


def session_zone(name: str) -> tzinfo:
    """Return the zone that a value of `spark.sql.session.timeZone` names: a region or an offset."""
    name = _SHORT.get(name, name)
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
    """Return a time without a zone in the zone of this task's session; outside of a task it is UTC.

    Spark passes the settings of a session to its tasks. A session without a zone setting uses that of its machine.
    """
    context = TaskContext.get()
    if context is None:
        return moment_of(when, UTC)
    name = context.getLocalProperty("spark.sql.session.timeZone")
    return moment_of(when, None if name is None else session_zone(name))


def moment_of(when: datetime, zone: tzinfo | None) -> datetime:
    """Return the time in UTC; one without a zone is in `zone`, or in this machine's zone if that is None.

    At the ends of the calendar, where UTC would be another year, it is the first or last moment there is.
    """
    try:
        return (when if when.tzinfo or zone is None else when.replace(tzinfo=zone)).astimezone(UTC)
    except (OverflowError, ValueError):
        return (datetime.min if when.year <= MINYEAR else datetime.max).replace(tzinfo=UTC)
