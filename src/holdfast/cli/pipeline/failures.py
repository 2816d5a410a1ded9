"""Extracts the one line that explains a Spark failure from Python and Java stack traces."""

import re

__all__ = ["reason_of"]

_TRACEBACK = "Traceback (most recent call last):"
_PYTHON_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*([A-Z]\w*): (.+)")
_OURS = re.compile(r"\bholdfast(?:\.\w+)*\.[A-Z]\w*: (.+)")
"""An error of ours says by itself what happened: no need to name its class, or who passed it on."""
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
        said = _JAVA_NOISE.sub("", line.strip())
        if said and not _BARE.match(said):
            return said
    return f"Spark failed with {type(error).__name__}"


def _raised_by_python(lines: list[str]) -> str | None:
    """Return the error at the end of the first traceback: later ones are of code that passed it on."""
    start = next(place for place, line in enumerate(lines) if line.strip() == _TRACEBACK)
    # Within a traceback, code and places are indented: what is not, is the error.
    depth = len(lines[start]) - len(lines[start].lstrip())
    for line in lines[start + 1 :]:
        if len(line) - len(line.lstrip()) > depth:
            continue
        match = _PYTHON_ERROR.match(line.strip())
        if match is not None:
            return ": ".join(match.groups())
    return None


def _message(error: BaseException) -> str:
    """Return the full text; a Java error from py4j is followed down to its cause."""
    java = getattr(error, "java_exception", None)
    said: list[str] = []
    try:
        while java is not None and len(said) < 20:
            message = java.getMessage()
            if message:
                said.append(str(message))
            java = java.getCause()
    except Exception:  # the Java process may be gone, and with it what it could have said
        pass
    return said[-1] if said else str(error)
