"""Rewrites the beginning of kernels' bodies.

A kernel with ``__launch_bounds__`` refuses blocks of more threads. A kernel that may be launched by
its address is noted when its library is loaded.
"""

from __future__ import annotations

from harness.emulator.lexer import on_one_line, quoted
from harness.emulator.syntax import Code, names_in

# The spellings, with what computes the bound from the first argument. Torch's headers define the others for nvcc alone.
_BOUNDS = {
    "__launch_bounds__": "({})",
    "C10_LAUNCH_BOUNDS_1": "::cuemu::torchs_bound({})",
    "C10_LAUNCH_BOUNDS_2": "::cuemu::torchs_bound({})",
}


def rewrite_launch_bounds(code: Code) -> None:
    """Puts a check of the block's threads at the beginning of each kernel that has a bound.

    Call it after the rewriting of kernels' bodies, because the check comes first in a body.
    """
    for position in range(len(code)):
        closing = code.close_of(position + 1) if code.text(position) in _BOUNDS else None
        if closing is None or code.text(position + 1) != "(":
            continue
        arguments = code.arguments(position + 2, closing)
        parameters = _parameters(code, closing)
        if not arguments or parameters is None:
            continue
        end = code.close_of(parameters)
        if end is None or code.text(end + 1) != "{":
            continue
        threads = _BOUNDS[code.text(position)].format(code.one_line(*arguments[0]))
        body = code.token(end + 1)
        body.written = "{ " + _check(code, position, parameters, end, threads) + body.written.removeprefix("{")


def note_kernels(code: Code) -> None:
    """Puts a note into each kernel, so that its address alone is enough to launch it.

    An instance of a template is noted if the compiler makes its code, as it does where a source takes
    its address. Call it last.
    """
    for position in range(len(code)):
        parameters = _parameters(code, position) if code.text(position) == "__global__" else None
        end = code.close_of(parameters) if parameters is not None else None
        if parameters is None or end is None or code.text(end + 1) != "{":
            continue
        named = _named(code, position, parameters, end)
        if named is not None:
            body = code.token(end + 1)
            body.written = f"{{ CUEMU_NOTE_KERNEL({named}) {body.written.removeprefix('{')}"


def _parameters(code: Code, position: int) -> int | None:
    """Returns the bracket that opens a kernel's parameters, from a position among its attributes on."""
    index = position + 1
    while index < len(code) and code.text(index) not in (";", "{", "}"):
        if code.text(index) == "(":
            if code.text(index - 1) == ">" or (code.is_name(index - 1) and not _takes_arguments(code.text(index - 1))):
                return index
            closing = code.close_of(index)
            if closing is None:
                return None
            index = closing
        index += 1
    return None


def _takes_arguments(name: str) -> bool:
    return name.startswith("__") or name in _BOUNDS or name in ("alignas", "decltype")


def _check(code: Code, position: int, parameters: int, end: int, threads: str) -> str:
    named = _named(code, position, parameters, end)
    return f"CUEMU_LAUNCH_BOUNDS({threads})" if named is None else f"CUEMU_NAMED_LAUNCH_BOUNDS({threads}, {named})"


def _named(code: Code, position: int, parameters: int, end: int) -> str | None:
    """Returns a kernel's name as a string and the kernel as an expression; None if its body cannot name it."""
    name_start = _name_start(code, parameters)
    name = code.text(name_start)
    arguments = _own_arguments(code, position)
    # Inside the body a parameter of the kernel's name hides it.
    if arguments is None or name in names_in(code.span(parameters, end)):
        return None
    kernel = code.one_line(name_start, parameters) if name_start + 1 < parameters else f"{name}{arguments}"
    return f"{quoted(name, code.parameters)}, {kernel}"


def _name_start(code: Code, parameters: int) -> int:
    """Returns the position of a kernel's name, which template arguments may follow."""
    if code.text(parameters - 1) == ">":
        opening = code.angle_open(parameters - 1)
        return opening - 1 if opening is not None else parameters - 1
    return parameters - 1


def _own_arguments(code: Code, position: int) -> str | None:
    """Returns a template's own parameters as arguments; empty outside a template, None if one has no name."""
    start = position
    while start > 0 and code.text(start - 1) not in (";", "{", "}"):
        start -= 1
    while start < position and code.text(start) != "template":
        start += 1
    closing = code.angle_close(start + 1) if code.text(start) == "template" else None
    if closing is None or closing == start + 2:
        return ""
    names = []
    for first, stop in code.arguments(start + 2, closing):
        equals = next((index for index in range(first, stop) if code.text(index) == "="), stop)
        if equals - 1 <= first or not code.is_name(equals - 1):
            return None
        pack = "..." if "..." in on_one_line(code.span(first, equals)) else ""
        names.append(code.text(equals - 1) + pack)
    return f"<{', '.join(names)}>"
