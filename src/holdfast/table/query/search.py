"""Text search: normalisation of text without case, accents and punctuation, and matching of words."""

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from holdfast.base.errors import InvalidArgument
from holdfast.table.query.expressions import Expression, Search

if TYPE_CHECKING:
    from holdfast.table.model.indexes import Normalized, Words
    from holdfast.table.model.model import ModelSpec

__all__ = ["normalize", "search", "search_part", "terms_of", "words"]

_ASCII_KEPT = {code: chr(code).lower() if chr(code).isalnum() else None for code in range(128)}
_ASCII_SPLIT = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}


def normalize(text: str) -> str:
    """Return the text case-folded, with only alphanumeric characters and without accents."""
    if text.isascii():
        return text.translate(_ASCII_KEPT)
    return "".join(char for char in _folded(text) if _is_kept(char))


def words(text: str) -> list[str]:
    """Return the normalised words of a text, in order; any character but alphanumeric ones and marks ends a word."""
    if text.isascii():
        return text.translate(_ASCII_SPLIT).split()
    spaced = "".join(char if _is_kept(char) else "" if unicodedata.combining(char) else " " for char in _folded(text))
    return spaced.split()


def _folded(text: str) -> str:
    # Folding may produce marks (as of the dotted capital I), so the text is decomposed again afterwards.
    return unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())


@lru_cache(4096)
def _is_kept(char: str) -> bool:
    """Whether a character is alphanumeric, or a vowel sign of a script that writes them as marks (not an accent)."""
    if char.isalnum():
        return True
    is_sign = unicodedata.category(char) in ("Mc", "Mn") and not unicodedata.combining(char)
    return is_sign and not "\ufe00" <= char <= "\ufe0f"  # variation selectors only choose a glyph


def search(text: str, *, index: str | None = None, prefix: bool = False, regex: bool = False) -> Expression:
    """True of objects with all the words of a text in the fields of a search index, in any order.

    `index` is the name of an index with a `Words` part, or with a `Normalized` one, where the whole text counts as one
    word; it may be left out if there is just one with words. With `prefix` beginnings of words are enough; with `regex`
    the text is a regular expression that a whole normalised word must match.
    """
    if prefix and regex:
        raise InvalidArgument("search by prefix or by regular expression, not by both")
    if regex:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidArgument(f"{text!r} is not a regular expression: {error}") from error
    elif not normalize(text):
        raise InvalidArgument(f"there is no word in {text!r} to search for")
    return Search(text, index, prefix, regex)


def search_part(spec: "ModelSpec", search: Search) -> "Words | Normalized":
    """Return the index part that a search uses; raises InvalidArgument if there is none."""
    from holdfast.table.model.indexes import Normalized, Reversed, Words  # noqa: PLC0415  (it takes words from here)

    named = [index for index in spec.indexes if search.index in (None, index.name)]
    kinds = (Words,) if search.index is None else (Words, Normalized)
    bare = [part.part if isinstance(part, Reversed) else part for index in named for part in index.parts]
    found = [part for part in dict.fromkeys(bare) if isinstance(part, kinds)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(index.name for index in spec.indexes if "words(" in index.canonical) or "none"
    what = f"named {search.index!r}" if search.index else "to choose automatically"
    raise InvalidArgument(
        f"{spec.name} has no single search index {what}: give index=...; those with words are {names}"
    )


def terms_of(part: "Words | Normalized", search: Search) -> list[str]:
    """Return the terms to find in the words of a part."""
    if search.regex:
        return [search.text]
    return words(search.text) if str(part).startswith("words") else [normalize(search.text)]
