"""Splits C++ and CUDA text into tokens.

So the rewriter never edits a string, a comment or half a name.

The tokens of a text joined together are that text again, even if it is malformed. An unclosed
string ends at its line, and an unclosed comment at the end of the text.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass


class Kind(enum.Enum):
    """The kind of a token."""

    SPACE = "space"  # blanks, newlines and line continuations
    COMMENT = "comment"
    STRING = "string"
    CHARACTER = "character"
    NUMBER = "number"
    NAME = "name"
    PUNCTUATION = "punctuation"
    DIRECTIVE = "directive"  # a whole preprocessor line with its continuations


@dataclass(slots=True)
class Token:
    """A token and its replacement text.

    Attributes:
        kind: The token's kind.
        text: The text as the user wrote it.
        written: The text that the rewriter writes instead.
    """

    kind: Kind
    text: str
    written: str

    @property
    def is_code(self) -> bool:
        """True unless the token is white space, a comment or a preprocessor line."""
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

# In a macro's body the parts of a name that the preprocessor joins are one name.
_JOINED_NAME = re.compile(r"[A-Za-z_$][\w$]*(?:[ \t]*\#\#[ \t]*[\w$]+)+")

# Inside a preprocessor line only a continuation or a comment can extend the line.
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
        text: Any text. It need not be correct C++.
        directives: Whether a ``#`` that opens a line makes one token of its preprocessor line.
            False for the body of a macro, where ``#`` is an operator and ``name##_kernel`` a name.

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
            joined = None if directives else _JOINED_NAME.match(text, position)
            piece, kind = (joined.group(), Kind.NAME) if joined is not None else _next_piece(text, position)
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
    # The alternative "." matches everything. This branch only guarantees that no input can raise.
    if match is None:
        return text[position], Kind.PUNCTUATION
    group = "string" if match["raw"] is not None else str(match.lastgroup)
    return match.group(0), _KINDS[group]


def _directive(text: str, position: int) -> str:
    end = position
    while (match := _DIRECTIVE_PIECE.match(text, end)) is not None:
        end = match.end()
    return text[position:end]


def written(tokens: Sequence[Token]) -> str:
    """Returns the text of the tokens after rewriting."""
    return "".join(token.written for token in tokens)


def line_breaks(text: str) -> str:
    """Returns the line breaks of a text, with the backslashes that continue lines.

    They keep line numbers right.
    """
    return "".join(re.findall(r"\\?\r?\n", text))


def quoted(name: str, parameters: Set[str]) -> str:
    """Returns a name as a C++ string, in the body of a macro with these parameters."""
    parts = re.split(r"[ \t]*##[ \t]*", name)
    return " ".join(f"#{part}" if part in parameters else f'"{part}"' for part in parts)


def on_one_line(tokens: Sequence[Token]) -> str:
    """Joins tokens without comments and line breaks, so that the text can move to another line."""
    return "".join(token.text if token.is_code else " " for token in tokens).strip()
