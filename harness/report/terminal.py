"""Fits tables and prose to the width of a terminal. Output that is no terminal keeps whole lines."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import TextIO, TypeVar

#: Columns where nobody reads on a screen. A program that reads the output wants whole lines.
UNLIMITED = 100_000
#: Blanks between two columns of a table.
GAP = 2
_Column = TypeVar("_Column")


def screen_width(stream: TextIO | None = None) -> int:
    """Returns the columns of a terminal, which ``COLUMNS`` sets, or ``UNLIMITED`` for another stream.

    Args:
        stream: The stream to print to; stdout by default.
    """
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else UNLIMITED


def fitting(widths: Mapping[_Column, int], dropped: Iterable[_Column], screen: int) -> list[_Column]:
    """Returns the columns of a table that fit a screen.

    Args:
        widths: The width of each column, in order.
        dropped: The columns that a narrow screen does without, in the order in which they go. The
            others always stay.
        screen: The width of the screen.
    """
    kept = list(widths)
    for column in dropped:
        if sum(widths[one] + GAP for one in kept) - GAP <= screen:
            break
        if column in kept:
            kept.remove(column)
    return kept


def wrapped(text: str, stream: TextIO | None = None, *, hang: int = 2) -> str:
    """Wraps the lines of a text between words. Commands stay whole, so that they can be copied.

    Args:
        text: The text.
        stream: The stream to print to; stdout by default.
        hang: By how much the rest of a line is indented further than its beginning.
    """
    width = screen_width(stream)
    return "\n".join(_wrapped_line(line, width, hang) for line in text.split("\n"))


def _wrapped_line(line: str, width: int, hang: int) -> str:
    start = line.lstrip()
    if len(line) <= width or start.startswith("python -m harness "):
        return line
    indent = " " * (len(line) - len(start) + hang)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
