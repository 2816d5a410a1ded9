"""Extracts the one line that explains a Spark failure from Python and Java stack traces."""

import re

__all__ = ["reason_of"]

_TRACEBACK = "Traceback (most recent call last):"
_PYTHON_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Z]\w*): (.+)")
_OURS = re.compile(r"\bholdfast(?:\.\w+)*\.[A-Z]\w*: (.+)")
"""Errors of Holdfast are complete sentences: neither their class nor the errors that wrap them are needed."""
_JAVA_NOISE = re.compile(r"^(?:java|scala|org\.apache\.spark|org\.apache\.hadoop)[\w.$]*(?:Exception|Error): ")
_BARE = re.compile(r"(?:at |\.\.\. |Caused by: |Driver stacktrace|JVM stacktrace|\s*$)")


def reason_of(error: BaseException) -> str:
    """Return the first meaningful line: of the error that Python code raised, if any, else of Java's own message."""
    text = _message(error)
    ours = _OURS.search(text)
    if ours is not None:
        return ours[1].strip()
    lines = text.splitlines()
    if any(line.strip() == _TRACEBACK for line in lines):
        found = _raised_by_python(lines)
        if found:
            return found
    for line in lines:
        message = _JAVA_NOISE.sub("", line.strip())
        if message and not _BARE.match(message):
            return message
    return f"Spark failed with {type(error).__name__}"


def _raised_by_python(lines: list[str]) -> str | None:
    """Return the error at the end of the first traceback: later ones are of errors that wrap it."""
    start = next(place for place, line in enumerate(lines) if line.strip() == _TRACEBACK)
    # Within a traceback, frames are indented: the first line that is not is the error.
    depth = len(lines[start]) - len(lines[start].lstrip())
    for line in lines[start + 1 :]:
        if len(line) - len(line.lstrip()) > depth:
            continue
        match = _PYTHON_ERROR.match(line.strip())
        if match is not None:
            return ": ".join(match.groups())
    return None


def _message(error: BaseException) -> str:
    """Return the message; of a Java error from py4j, the message of its innermost cause."""
    java = getattr(error, "java_exception", None)
    messages: list[str] = []
    try:
        while java is not None and len(messages) < 20:
            message = java.getMessage()
            if message:
                messages.append(str(message))
            java = java.getCause()
    except Exception:  # the Java process may have ended
        pass
    return messages[-1] if messages else str(error)
