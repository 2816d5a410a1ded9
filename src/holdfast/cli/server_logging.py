"""Log lines of the server: one line for each message, whatever clients put into it."""

import logging
import re

__all__ = ["LineFormatter"]

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_NOT_ASCII_TEXT = re.compile(r"[^\x20-\x7e]")


class LineFormatter(logging.Formatter):
    """Escapes what is not printable in the message of a record.

    Names of virtual hosts, exchanges and users come from clients: a line break in one would forge a log line, and an
    escape sequence would reach the operator's terminal. Tracebacks follow on their own lines, unescaped.
    """

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line, without a traceback."""
        record.message = _NOT_ASCII_TEXT.sub(_escaped, record.message)
        return super().formatMessage(record)


def _escaped(found: re.Match[str]) -> str:
    """Return a character as Python writes it, if it is not printable."""
    character = found.group()
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
