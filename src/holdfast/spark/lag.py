"""Records behind the latest: as a stream reports them in the progress of its query, and read back from there.

Spark 4.3 shows of a Python source only its offsets: its name is that of a Java object, and it has no metrics. Of the
offsets, `latestOffset` is only reported, and never stored or compared. So it carries what people look for.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from holdfast.spark.options import ReadOptions
from holdfast.spark.partitions import Picture
from holdfast.spark.sources import Track

__all__ = ["LogLag", "lags_of", "reported", "without_credentials"]


@dataclass(frozen=True, slots=True)
class LogLag:
    """How far a query is behind in one log, when Spark planned the batch of this progress."""

    label: str
    """The log as the offsets of the query name it: a log, a table, or `queue/log` and `queue/journal`."""
    store: str
    """The folder or URL of the store, without credentials."""
    log: str | None
    """The name of the log in the store; None for a table and for the journal of a queue."""
    log_id: str
    position: int
    """All records before it are processed."""
    latest: int
    """The end of the log."""
    behind: int


def reported(
    options: ReadOptions, latest: Iterable[tuple[Track, Picture]], planned: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    """Return the end of each log with its store, its name and how many records are behind the planned batch."""
    found: dict[str, dict[str, Any]] = {}
    for track, picture in latest:
        entry: dict[str, Any] = {
            "0": picture.end,
            "id": track.log.id.hex(),
            "store": without_credentials(options.place),
        }
        if track.kind in ("log", "put") and options.table is None:
            entry["log"] = track.log.name
        if planned:
            entry["behind"] = max(0, picture.end - planned.get(track.label, picture.start))
        found[track.label] = entry
    return found


def lags_of(source: Mapping[str, Any]) -> list[LogLag]:
    """Return the lag of each log in the progress of a source; none if it is not a Holdfast source."""
    ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    found = []
    for label, entry in latest.items():
        end = ends.get(label)
        # A log that came after the batch was planned is not in its end.
        behind = entry["0"] - end["0"] if end is not None else entry.get("behind", entry["0"])
        position = end["0"] if end is not None else entry["0"] - behind
        found.append(
            LogLag(
                label, entry.get("store", ""), entry.get("log"), entry["id"], position, entry["0"], max(0, int(behind))
            )
        )
    return found


def without_credentials(place: str) -> str:
    """Return the folder or URL of a store without what may be a credential: the user part, query and fragment."""
    if "://" not in place:
        return place
    parts = urlsplit(place)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _offsets(text: Any) -> dict[str, dict[str, Any]]:
    """Return offsets of this source from their JSON; of another source, or without any, an empty dict."""
    try:
        content = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    if not isinstance(content, dict):
        return {}
    ours = all(
        isinstance(entry, dict) and isinstance(entry.get("0"), int) and isinstance(entry.get("id"), str)
        for entry in content.values()
    )
    return content if ours else {}
