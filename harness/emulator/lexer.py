"""C++ and CUDA text as tokens, so that the rewriter never edits a string, a comment or half a name.

The tokens of a text joined together are that text again, whatever is wrong with it: an unclosed string ends at its
line, an unclosed comment at the end of the text.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass


class Kind(enum.Enum):
    """What a token is."""

    SPACE = "space"  # blanks, newlines and line continuations
    COMMENT = "comment"
    STRING = "string"
    CHARACTER = "character"
    NUMBER = "number"
    NAME = "name"
    PUNCTUATION = "punctuation"
    DIRECTIVE = "directive"  # a whole preprocessor line, its continuations included


@dataclass(slots=True)
class Token:
    """One token and the text that will be written in its place.

    Attributes:
        kind: What it is.
        text: The text as the user wrote it.
        written: The text that the rewriter writes instead.
    """

    kind: Kind
    text: str
    written: str

    @property
    def is_code(self) -> bool:
        """Whether the compiler would see it outside preprocessor lines."""
        return self.kind not in (Kind.SPACE, Kind.COMMENT, Kind.DIRECTIVE)


_TOKEN = re.compile(
    r"""
      (?P<space>(?:[ \t\r\n\f\v]|\\\r?\n)+)
    | (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z))
    | (?P<raw>(?:u8|[uUL])?R"(?P<fence>[^\s()\\]{0,16})\(.*?\)(?P=fence)")
    | (?P<string>"(?:\\\r?\n|\\.|[^"\\\n])*"?)
    | (?P<character>'(?:\\.|[^'\\\n])*'?)
    | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    | (?P<name>[A-Za-z_$][\w$]*)
    | (?P<punctuation><<<|<<=|<<|<=>|<=|>=|->\*|->|::|\#\#|&&|\|\||==|!=|\+=|-=|\*=|\.\.\.|.)
    """,
    re.VERBOSE | re.DOTALL,
)

# Inside a preprocessor line only a continuation or a comment carries the line on.
_DIRECTIVE_PIECE = re.compile(
    r"""\\\r?\n | //(?:\\\r?\n|[^\n])* | /\*.*?(?:\*/|\Z)
    | "(?:\\\r?\n|\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | [^\n]""",
    re.VERBOSE | re.DOTALL,
)

_KINDS = {
    "space": Kind.SPACE,
    "comment": Kind.COMMENT,
    "string": Kind.STRING,
    "character": Kind.CHARACTER,
    "number": Kind.NUMBER,
    "name": Kind.NAME,
    "punctuation": Kind.PUNCTUATION,
}


def tokenize(text: str, *, directives: bool = True) -> list[Token]:
    """Splits C++ text into tokens.

    Args:
        text: Any text; it need not be correct C++.
        directives: Whether a ``#`` that opens a line makes one token of its preprocessor line; False for the body
            of a macro, where ``#`` is an operator.

    Returns:
        Tokens whose texts joined are ``text``.
    """
    tokens: list[Token] = []
    position = 0
    line_is_empty = True
    while position < len(text):
        if directives and line_is_empty and text[position] == "#":
            piece, kind = _directive(text, position), Kind.DIRECTIVE
        else:
            piece, kind = _next_piece(text, position)
        tokens.append(Token(kind, piece, piece))
        position += len(piece)
        if kind is Kind.SPACE:
            line_is_empty = line_is_empty or "\n" in piece.replace("\\\r\n", "").replace("\\\n", "")
        elif kind is Kind.DIRECTIVE:
            line_is_empty = True
        elif kind is not Kind.COMMENT:
            line_is_empty = False
    return tokens


def _next_piece(text: str, position: int) -> tuple[str, Kind]:
    match = _TOKEN.match(text, position)
    if match is None:  # every alternative failed, which "." rules out; kept so that no input can raise
        return text[position], Kind.PUNCTUATION
    group = "string" if match["raw"] is not None else str(match.lastgroup)
    return match.group(0), _KINDS[group]


def _directive(text: str, position: int) -> str:
    end = position
    while (match := _DIRECTIVE_PIECE.match(text, end)) is not None:
        end = match.end()
    return text[position:end]


def written(tokens: Sequence[Token]) -> str:
    """The text that the tokens stand for after rewriting."""
    return "".join(token.written for token in tokens)


def line_breaks(text: str) -> str:
    """The line breaks of a text, each with the backslash that continues it: what keeps line numbers right."""
    return "".join(re.findall(r"\\?\r?\n", text))


def on_one_line(tokens: Sequence[Token]) -> str:
    """The tokens without comments and line breaks, as text that may be moved to another line."""
    return "".join(token.text if token.is_code else " " for token in tokens).strip()
