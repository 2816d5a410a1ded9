"""Segment files of a log: their names in dated folders, their order, and the list of those that exist."""

import re
from datetime import date
from pathlib import Path
from typing import NamedTuple

from holdfast.base.clock import from_ns
from holdfast.base.files import Files

__all__ = ["SegmentName", "list_segments", "next_name"]

DATA = ".data"
INDEX = ".index"


class SegmentName(NamedTuple):
    """A segment's day and number; their order is the order of the log."""

    year: int
    month: int
    day: int
    number: int

    @property
    def stem(self) -> str:
        """The file's name without its suffix."""
        return f"{self.year:04}{self.month:02}{self.day:02}-{self.number:04}"

    @classmethod
    def of_stem(cls, stem: str) -> "SegmentName":
        """Return the name of the segment whose file has this name without its suffix. Raises ValueError."""
        day, _, number = stem.partition("-")
        return cls(int(day[:4]), int(day[4:6]), int(day[6:]), int(number))

    def folder(self, log: Path) -> Path:
        """Return the dated folder of the segment."""
        return log / f"{self.year:04}" / f"{self.month:02}" / f"{self.day:02}"

    def data_path(self, log: Path) -> Path:
        """Return the path of the segment."""
        return log / self._path(DATA)

    def index_path(self, log: Path) -> Path:
        """Return the path of its sparse index."""
        return log / self._path(INDEX)

    def _path(self, ending: str) -> str:
        return f"{self.year:04}/{self.month:02}/{self.day:02}/{self.stem}{ending}"


def list_segments(files: Files, log: Path) -> list[SegmentName]:
    """Return the names of all segments, oldest first."""
    return sorted(
        SegmentName(int(year), int(month), int(day), int(match[1]))
        for year in files.list(log)
        if re.fullmatch(r"\d{4}", year)
        for month in files.list(log / year)
        if re.fullmatch(r"\d{2}", month)
        for day in files.list(log / year / month)
        if re.fullmatch(r"\d{2}", day)
        for fits in [re.compile(rf"{year}{month}{day}-(\d{{4,}}){re.escape(DATA)}", re.ASCII).fullmatch]
        for entry in files.list(log / year / month / day)
        if (match := fits(entry))
    )


def next_name(last: SegmentName | None, now_ns: int) -> SegmentName:
    """Return the next name. It sorts behind the last one, also if the clock was set back to another day."""
    today: date = from_ns(now_ns).date()
    day = (today.year, today.month, today.day)
    if last is None or day > last[:3]:
        return SegmentName(*day, 1)
    return SegmentName(*last[:3], last.number + 1)
