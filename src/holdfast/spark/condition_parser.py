"""Conditions from users who must not run code: a small SQL grammar, parsed here and rewritten for Spark.

Spark's SQL can call any static Java method (`reflect`, `java_method`, `try_reflect`), functions that a session
registered, and subqueries. So a condition that comes over HTTP is parsed by this grammar, which accepts only what is
listed here, and Spark gets text that is generated from the parse tree, never the original text. Names are quoted in it:
none of them can be a keyword.

    condition   = and ("OR" and)*                   and = not ("AND" not)*          not = "NOT" not | comparison
    comparison  = sum [operator sum | ["NOT"] ("LIKE" | "ILIKE") sum | ["NOT"] "BETWEEN" sum "AND" sum
                  | ["NOT"] "IN" "(" sum ("," sum)* ")" | "IS" ["NOT"] "NULL"]
    sum         = term (("+" | "-" | "||") term)*   term = factor (("*" | "/" | "%") factor)*
    factor      = "-" factor | atom ("[" sum "]")*
    atom        = literal | column | function "(" ... ")" | "CAST" "(" condition "AS" type ")" | "(" condition ")"
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.base.errors import InvalidArgument

__all__ = ["FUNCTIONS", "safe_condition"]

FUNCTIONS = frozenset(
    [
        "abs",
        "base64",
        "ceil",
        "char_length",
        "coalesce",
        "concat",
        "contains",
        "crc32",
        "date_trunc",
        "day",
        "decode",
        "element_at",
        "encode",
        "endswith",
        "floor",
        "get_json_object",
        "greatest",
        "hex",
        "hour",
        "if",
        "ifnull",
        "instr",
        "least",
        "left",
        "length",
        "lower",
        "ltrim",
        "map_contains_key",
        "md5",
        "minute",
        "month",
        "nullif",
        "octet_length",
        "right",
        "round",
        "rtrim",
        "second",
        "sha2",
        "size",
        "startswith",
        "substr",
        "substring",
        "timestamp_micros",
        "timestamp_millis",
        "timestamp_seconds",
        "to_date",
        "to_timestamp",
        "trim",
        "try_to_number",
        "unbase64",
        "unhex",
        "unix_micros",
        "unix_millis",
        "unix_seconds",
        "upper",
        "year",
    ]
)
"""Functions that may be called. They use only their arguments, and do not produce large results from small ones."""
TYPES = frozenset(
    [
        "bigint",
        "binary",
        "boolean",
        "date",
        "double",
        "float",
        "int",
        "integer",
        "long",
        "short",
        "smallint",
        "string",
        "timestamp",
        "tinyint",
    ]
)
_LENGTH_MAX = 8192
_DEPTH_MAX = 40
_COMPARISONS = {"=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">="}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "%": "\\%", "_": "\\_"}
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])
    |(?P<binary>[xX]'[0-9a-fA-F]*')
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<quoted>`(?:[^`]|``)+`)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<sign><=>|==|<>|!=|<=|>=|\|\||-(?!-)|[+*/%=<>(),.\[\]])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def safe_condition(text: str) -> str:
    """Return the condition as Spark gets it; raise `InvalidArgument` for anything outside the grammar."""
    if len(text) > _LENGTH_MAX:
        raise InvalidArgument(f"the condition has {len(text)} characters: {_LENGTH_MAX} are allowed over HTTP")
    if "\0" in text:
        raise InvalidArgument("the condition contains a NUL character: remove it")
    return _Parser(text).parse()


class _Parser:
    """Recursive-descent parser of one condition; each method returns SQL for what it has read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0

    def parse(self) -> str:
        found = self._condition()
        if self._token.kind != "end":
            raise self._unexpected()
        return found

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _unexpected(self) -> InvalidArgument:
        token = self._token
        what = "its end" if token.kind == "end" else repr(token.text)
        return InvalidArgument(
            f"the condition {self._text[:200]!r} is not understood at {what} (character {token.at + 1}). Over HTTP a "
            "condition has columns, literals, comparisons, AND, OR, NOT, arithmetic, LIKE, IN, BETWEEN, IS NULL, CAST "
            f"and these functions: {', '.join(sorted(FUNCTIONS))}"
        )

    def _is(self, *words: str) -> bool:
        """Whether the next token is one of these keywords or operators; a quoted name never is."""
        return self._token.kind in ("word", "sign") and self._token.text.upper() in words

    def _take(self, *words: str) -> str | None:
        if not self._is(*words):
            return None
        found = self._token.text.upper()
        self._next += 1
        return found

    def _expect(self, word: str) -> None:
        if self._take(word) is None:
            raise self._unexpected()

    def _condition(self) -> str:
        parts = [self._and()]
        while self._take("OR"):
            parts.append(self._and())
        return _joined(parts, "OR")

    def _and(self) -> str:
        parts = [self._not()]
        while self._take("AND"):
            parts.append(self._not())
        return _joined(parts, "AND")

    def _not(self) -> str:
        negations = 0
        while self._take("NOT"):
            negations += 1
        found = self._comparison()
        return f"(NOT {found})" if negations % 2 else found

    def _comparison(self) -> str:
        left = self._sum()
        if self._take("IS"):
            negated = " NOT" if self._take("NOT") else ""
            self._expect("NULL")
            return f"({left} IS{negated} NULL)"
        if operator := self._take(*_COMPARISONS):
            return f"({left} {operator} {self._sum()})"
        negated = "NOT " if self._take("NOT") else ""
        if operator := self._take("LIKE", "ILIKE"):
            return f"({left} {negated}{operator} {self._sum()})"
        if self._take("BETWEEN"):
            low = self._sum()
            self._expect("AND")
            return f"({left} {negated}BETWEEN {low} AND {self._sum()})"
        if self._take("IN"):
            self._expect("(")
            return f"({left} {negated}IN ({self._list(self._sum)}))"
        if negated:
            raise self._unexpected()
        return left

    def _list(self, item: Callable[[], str]) -> str:
        """Parse one or more items, up to the closing parenthesis."""
        found = [item()]
        while self._take(","):
            found.append(item())
        self._expect(")")
        return ", ".join(found)

    def _sum(self) -> str:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise InvalidArgument(f"the condition is nested more than {_DEPTH_MAX} levels deep: write it flatter")
        parts = [self._term()]
        while operator := self._take("+", "-", "||"):
            parts += [operator, self._term()]
        self._depth -= 1
        return parts[0] if len(parts) == 1 else f"({' '.join(parts)})"

    def _term(self) -> str:
        parts = [self._factor()]
        while operator := self._take("*", "/", "%"):
            parts += [operator, self._factor()]
        return parts[0] if len(parts) == 1 else f"({' '.join(parts)})"

    def _factor(self) -> str:
        negations = 0
        while self._take("-"):
            negations += 1
        found = self._atom()
        while self._take("["):
            found = f"{found}[{self._sum()}]"
            self._expect("]")
        return f"(- {found})" if negations % 2 else found

    def _atom(self) -> str:
        token = self._token
        if self._take("("):
            found = self._condition()
            self._expect(")")
            return f"({found})"
        if token.kind in ("number", "binary"):
            self._next += 1
            return token.text
        if token.kind == "text":
            self._next += 1
            return self._literal(token)
        if token.kind == "word":
            return self._word(token)
        if token.kind == "quoted":
            return self._column()
        raise self._unexpected()

    def _word(self, token: _Token) -> str:
        following = self._tokens[self._next + 1]
        word = token.text.upper()
        if following.kind == "sign" and following.text == "(":
            return self._call(token.text.lower())
        if word in ("DATE", "TIMESTAMP") and following.kind == "text":
            self._next += 2
            return f"{word} {self._literal(following)}"
        if word in ("TRUE", "FALSE", "NULL"):
            self._next += 1
            return word
        return self._column()

    def _call(self, name: str) -> str:
        if name != "cast" and name not in FUNCTIONS:
            raise self._unexpected()
        self._next += 2
        if name == "cast":
            value = self._condition()
            self._expect("AS")
            kind = self._token.text.lower()
            if self._token.kind != "word" or kind not in TYPES:
                raise self._unexpected()
            self._next += 1
            self._expect(")")
            return f"CAST({value} AS {kind})"
        return f"{name}({self._list(self._condition)})"

    def _column(self) -> str:
        parts = [self._name()]
        while self._take("."):
            parts.append(self._name())
        return ".".join(parts)

    def _name(self) -> str:
        token = self._token
        if token.kind == "word":
            name = token.text
        elif token.kind == "quoted":
            name = token.text[1:-1].replace("``", "`")
        else:
            raise self._unexpected()
        self._next += 1
        return "`" + name.replace("`", "``") + "`"

    def _literal(self, token: _Token) -> str:
        """Return the text of a literal, quoted again."""
        quote, inner = token.text[0], token.text[1:-1]
        found, at = [], 0
        while at < len(inner):
            character = inner[at]
            if character == "\\":
                character = _ESCAPES.get(inner[at + 1], "")
                if not character:
                    raise InvalidArgument(
                        f"the condition has the escape {inner[at : at + 2]!r}, which is not supported; there are: "
                        + " ".join(f"\\{one}" for one in _ESCAPES if one.isprintable())
                    )
                at += 1
            elif character == quote:  # twice
                at += 1
            found.append(character)
            at += 1
        return "'" + "".join(found).replace("\\", "\\\\").replace("'", "\\'") + "'"


def _joined(parts: list[str], word: str) -> str:
    return parts[0] if len(parts) == 1 else "(" + f" {word} ".join(parts) + ")"


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise InvalidArgument(
                f"the condition {text[:200]!r} is not understood at {text[at]!r} (character {at + 1})"
            )
        if found.lastgroup != "space":
            yield _Token(found.lastgroup, found.group(), at)
        at = found.end()
    yield _Token("end", "", at)
    yield _Token("end", "", at)
