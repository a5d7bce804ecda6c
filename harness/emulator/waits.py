"""Finds the loops in which a thread waits for a volatile value, which another thread changes."""

from __future__ import annotations

from collections.abc import Iterator

from harness.emulator.syntax import Code, names_in

_ENDS_A_DECLARATOR = frozenset({";", ",", ")", "=", "[", "(", "{"})
_ASM = frozenset({"asm", "__asm__", "__asm"})
_TYPES = frozenset({"bool", "char", "short", "int", "long", "unsigned", "signed", "float", "double", "const", "auto"})


def rewrite_waits(code: Code) -> None:
    """Lets other threads run in a loop without a body, and in a ``do`` loop, while a volatile value stays as it is."""
    volatile = {"volatile", *_volatile_names(code)}
    for position in range(len(code)):
        opening = position + 1
        closing = code.close_of(opening) if code.text(position) == "while" else None
        if closing is None or not names_in(code.span(opening + 1, closing)) & volatile:
            continue
        is_empty = code.text(closing + 1) == ";" or (code.text(closing + 1) == "{" and code.text(closing + 2) == "}")
        declares = code.text(opening + 1) in _TYPES or (code.is_name(opening + 1) and code.is_name(opening + 2))
        if is_empty and not declares:
            code.token(opening).written = "(CUEMU_WAITS "


def declares_volatile(code: Code) -> bool:
    """Tells whether a text has a volatile variable, parameter or pointer."""
    return any(_volatile_names(code))


def _volatile_names(code: Code) -> Iterator[str]:
    """Yields each name that is declared with ``volatile``."""
    for position in range(len(code)):
        if code.text(position) != "volatile" or code.text(position - 1) in _ASM:
            continue
        end = position + 1
        while end < len(code) and (code.is_name(end) or code.text(end) in ("*", "&", "::")):
            end += 1
        name = code.text(end - 1)
        has_type = end - position > 2 or code.is_name(position - 1)
        if code.text(end) in _ENDS_A_DECLARATOR and code.is_name(end - 1) and has_type and name not in _TYPES:
            yield name
