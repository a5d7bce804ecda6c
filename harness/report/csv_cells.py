"""Writes values as cells of a CSV file, which spreadsheets open."""

from __future__ import annotations

from harness.system.text import printable

#: Characters that make a spreadsheet run a cell as a formula, in ASCII and full width.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def cell(value: object) -> object:
    """Returns a value as a cell.

    The function escapes control characters in text, and puts a ' before text that would be a
    formula.
    """
    if not isinstance(value, str):
        return value
    return f"'{printable(value)}" if value.startswith(_FORMULA) else printable(value)
