"""Formats tables and text as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.system.text import one_line


def section(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a section: its heading and a table."""
    return [f"## {title}", "", *table(header, rows), ""]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a table, with the text of its cells escaped."""
    return [_line(header), _line(["---"] * len(header)), *(_line(row) for row in rows)]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"


def escaped(text: str) -> str:
    """Escapes Markdown and HTML, because names and messages come from other people."""
    safe = "".join(f"\\{one}" if one in "\\`*<|" else one for one in one_line(text))
    return safe.replace("](", "]\\(")
