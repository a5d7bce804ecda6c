"""Formats the JSON values of a record as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.system.text import one_line

#: Maximum depth of a record's objects to read.
_DEPTH = 6


def leaves(value: Any, name: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yields the plain values in a JSON object with their paths; items of a list share one path."""
    if isinstance(value, dict | list | tuple):
        inner = value.items() if isinstance(value, dict) else (("", one) for one in value)
        for key, one in inner if depth else ():
            yield from leaves(one, " ".join(filter(None, (name, str(key)))), depth - 1)
    elif value is not None and value != "":
        yield name, value


def value_text(value: Any) -> str:
    """Formats any value of a record in one line."""
    return one_line("; ".join(f"{name}: {leaf}" if name else str(leaf) for name, leaf in leaves(value)))
