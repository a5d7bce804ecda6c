"""Finds the loops in which a thread waits for a volatile value, which another thread changes."""

from __future__ import annotations

from collections.abc import Iterator

from harness.emulator.syntax import Code, names_in

_ENDS_A_DECLARATOR = frozenset({";", ",", ")", "=", "[", "(", "{"})
_ASM = frozenset({"asm", "__asm__", "__asm"})


def rewrite_waits(code: Code) -> None:
    """Lets other threads run in the empty body of each loop whose condition reads a volatile value."""
    volatile = {code.text(place) for place in _volatile_names(code)}
    for position in range(len(code)):
        closing = code.close_of(position + 1) if code.text(position) == "while" else None
        if closing is None or not names_in(code.span(position + 2, closing)) & {"volatile", *volatile}:
            continue
        opening = code.open_of(position - 1) if code.text(position - 1) == "}" else None
        if opening is not None and code.text(opening - 1) == "do":
            if opening + 1 == position - 1:
                code.token(opening).written = "{ CUEMU_WAITS"
        elif code.text(closing + 1) == ";":
            code.token(closing + 1).written = "{ CUEMU_WAITS }"
        elif code.text(closing + 1) == "{" and code.text(closing + 2) == "}":
            code.token(closing + 1).written = "{ CUEMU_WAITS"


def declares_volatile(code: Code) -> bool:
    """Tells whether a text has a volatile variable, parameter or pointer."""
    return any(True for _ in _volatile_names(code))


def _volatile_names(code: Code) -> Iterator[int]:
    """Yields the position of each name that is declared with ``volatile``."""
    for position in range(len(code)):
        if code.text(position) != "volatile" or code.text(position - 1) in _ASM:
            continue
        end = position + 1
        while end < len(code) and (code.is_name(end) or code.text(end) in ("*", "&", "::")):
            end += 1
        if code.text(end) in _ENDS_A_DECLARATOR and code.is_name(end - 1) and end - position > 2:
            yield end - 1
