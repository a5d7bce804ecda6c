"""Splits an answer into reasoning and the fenced pieces of code after it.

A Markdown parser fails on typical answers of models. It ends a fence at a line of backticks inside
a string of the code. It reads ``<think>`` as HTML. It loses an indented fence whose content is not
indented.

This module therefore uses only CommonMark's rules for lines that open and close a fence (version
0.31.2, section 4.5), with any indentation. Python's parser then picks the closing line: the first
one that leaves no string open.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.answers.code import Parsed, parse
from harness.errors import AnswerError

#: Maximum number of closing lines to try for one piece of code. The earlier ones lie inside
#: strings.
_MOST_CLOSINGS = 16
#: Limit on the characters to read: a constant plus a multiple of the answer's length. Without it, a
#: text of opening fences alone would take hours.
_READINGS_OF_ANSWER = 8
_READINGS_AT_LEAST = 16 << 20
_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<run>`{3,}|~{3,})(?P<info>.*)")
_BARE_FENCE = re.compile(r"[ \t]*(?:`{3,}|~{3,})[ \t]*")
_WORDS = "think|thinking|thought|thoughts|reason|reasoning|reflection|analysis|scratchpad"
_TAG = re.compile(
    rf"<(?P<slash>/?)(?:\w{{1,20}}:)?(?:{_WORDS})>"
    r"|<\|(?P<edge>begin|end)_of_thought\|>|◁(?P<bar>/?)think▷"
    r"|<\|channel\|>(?P<channel>analysis|final)<\|message\|>",
    re.IGNORECASE,
)
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)[^`]+\1(?!`)")
_QUOTES = "\"'"


@dataclass(frozen=True)
class CodeBlock:
    """A fenced piece of code.

    Attributes:
        opening: Line of its opening fence, from 1.
        last: Its last line, which is the line before the closing fence if there is one.
        text: Its lines without the fence's indentation, each with its line end.
        parsed: Result of parsing it as Python.
        closed: Whether its fence was closed.
    """

    opening: int
    last: int
    text: str
    parsed: Parsed
    closed: bool

    @property
    def first(self) -> int:
        """Number of its first line."""
        return self.opening + 1

    @property
    def is_complete(self) -> bool:
        """True if the block alone could be a solution: its fence closes, it parses, and it defines the model."""
        return self.closed and self.parsed.defines_model


@dataclass(frozen=True)
class FinalPart:
    """The part of an answer after the reasoning, or the whole answer if it has no reasoning.

    Attributes:
        first: Number of its first line, from 1.
        text: Its text.
        pieces: Its pieces of code, in order.
        reasoning_ends: Line of the tag that ends the last reasoning before it; None without
            reasoning.
        reasoning_begins: Line of the tag that begins reasoning which never ends, else None. If it
            is set, the final part is empty.
    """

    first: int
    text: str
    pieces: tuple[CodeBlock, ...]
    reasoning_ends: int | None
    reasoning_begins: int | None


class _Tag(NamedTuple):
    """A tag that begins or ends reasoning, with the column after it."""

    closes: bool
    stop: int


class _Opening(NamedTuple):
    """A line that opens a fence."""

    indent: str
    run: str
    info: str


def final_part(answer: Sequence[str]) -> FinalPart:
    """Finds the part of an answer that counts.

    The function ignores tags inside quotes, inside a code span and inside a piece of code that
    parses. A closing tag without an opening one marks everything before it as reasoning, because
    the opening tag may have been part of the prompt.

    Args:
        answer: The answer's lines.

    Raises:
        AnswerError: So many fences never close that reading the answer would take too long.
    """
    lines = list(answer)
    reader = _PieceReader(lines)
    pieces: list[CodeBlock] = []
    first = 0
    begins: int | None = None
    ends: int | None = None
    at = 0
    while at < len(lines):
        tag = _last_tag(lines[at])
        if tag is not None:
            pieces.clear()
            if tag.closes:
                begins, ends, first = None, at + 1, at
                lines[at] = lines[at][tag.stop :]  # code or a fence may follow on the same line
                continue
            begins = begins or at + 1
        elif begins is None and (opening := _opening(lines[at])) is not None:
            piece, at = reader.read(at, opening)
            pieces += [piece] if piece is not None else []
            continue
        at += 1
    if begins is not None:
        first = len(lines)
    return FinalPart(first + 1, "\n".join(lines[first:]), tuple(pieces), ends, begins)


class _PieceReader:
    """Reads pieces of code from an answer's lines.

    Args:
        lines: The answer's lines.
    """

    def __init__(self, lines: Sequence[str]):
        self._lines = lines
        self._bare_fences = [at for at, line in enumerate(lines) if _BARE_FENCE.fullmatch(line)]
        self._containers_end: set[int] = set()
        self._left = _READINGS_AT_LEAST + _READINGS_OF_ANSWER * (sum(map(len, lines)) + len(lines))

    def read(self, at: int, opening: _Opening) -> tuple[CodeBlock | None, int]:
        """Returns the piece of code that a line opens, and the line where reading continues.

        The piece is None if the fence contains shorter fences, as in Markdown that shows Markdown;
        the caller reads those next. The piece is also None at the end of such a fence.
        """
        if at in self._containers_end:
            return None, at + 1
        closings = self._closings(at, opening)
        first_closing = next(closings, None)
        closing = first_closing
        for _ in range(_MOST_CLOSINGS):
            if closing is None:
                break
            piece = self._cut(at, closing, opening, closed=True)
            if piece.parsed.parses:
                return piece, closing + 1
            if not piece.parsed.string_is_open:
                break
            closing = next(closings, None)
        stop = len(self._lines) if first_closing is None else first_closing
        given_up = next((line for line in range(at + 1, stop) if self._ends_a_draft(line)), None)
        if given_up is not None:
            inner = _opening(self._lines[given_up])
            if inner is not None and not inner.run.startswith(opening.run) and first_closing is not None:
                self._containers_end.add(first_closing)
                return None, given_up
            return self._cut(at, given_up, opening, closed=False), given_up
        if first_closing is None:
            return self._cut(at, stop, opening, closed=False), stop
        return self._cut(at, stop, opening, closed=True), stop + 1

    def _closings(self, at: int, opening: _Opening) -> Iterator[int]:
        """Yields the lines that could close a fence."""
        for index in range(bisect.bisect_right(self._bare_fences, at), len(self._bare_fences)):
            self._spend(at, 1)
            if self._lines[self._bare_fences[index]].strip().startswith(opening.run):
                yield self._bare_fences[index]

    def _ends_a_draft(self, line: int) -> bool:
        """Returns whether a line ends a piece that is not Python: a tag, or a fence with a label.

        A model may have given up a draft without closing its fence.
        """
        inner = _opening(self._lines[line])
        return _last_tag(self._lines[line]) is not None or (inner is not None and bool(inner.info))

    def _cut(self, at: int, end: int, opening: _Opening, closed: bool) -> CodeBlock:
        lines = self._lines[at + 1 : end]
        self._spend(at, sum(map(len, lines)) + len(lines))
        text = "".join(f"{_without_indent(line, len(opening.indent))}\n" for line in lines)
        return CodeBlock(at + 1, end, text, parse(text), closed)

    def _spend(self, at: int, characters: int) -> None:
        self._left -= characters
        if self._left < 0:
            raise AnswerError(
                f"line {at + 1}: too many code fences (```) never close; give the final code alone, as a .py "
                "file or in one fence"
            )


def _last_tag(line: str) -> _Tag | None:
    if "<" not in line and "◁" not in line:
        return None
    masked = _CODE_SPAN.sub(lambda span: " " * len(span[0]), line)
    found = None
    for match in _TAG.finditer(masked):
        before, behind = masked[max(0, match.start() - 1) : match.start()], masked[match.end() : match.end() + 1]
        if before and before == behind and before in _QUOTES:
            continue
        words = {match["slash"], match["bar"], (match["edge"] or "").lower(), (match["channel"] or "").lower()}
        found = _Tag(bool(words & {"/", "end", "final"}), match.end())
    return found


def _opening(line: str) -> _Opening | None:
    match = _FENCE.fullmatch(line)
    if match is None or (match["run"][0] == "`" and "`" in match["info"]):
        return None
    return _Opening(match["indent"], match["run"], match["info"].strip())


def _without_indent(line: str, most: int) -> str:
    blank = len(line) - len(line.lstrip(" \t"))
    return line[min(blank, most) :]
