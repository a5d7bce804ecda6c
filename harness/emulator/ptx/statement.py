"""Parses an ``asm`` statement: its template, and the C++ expressions that are its operands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harness.emulator.lexer import Kind, tokenize
from harness.emulator.ptx.macros import Macro, Refused
from harness.emulator.syntax import Code


@dataclass(frozen=True)
class Operand:
    """An operand of an ``asm`` statement.

    Attributes:
        letter: The constraint's letter: ``r``, ``l``, ``h``, ``f``, ``d`` or ``n``.
        text: The C++ expression.
        is_read: Whether the statement reads it.
        is_written: Whether the statement writes it.
    """

    letter: str
    text: str
    is_read: bool
    is_written: bool


@dataclass(frozen=True)
class Statement:
    """An ``asm`` statement.

    Attributes:
        template: The PTX text, with ``%0`` and so on for operands.
        operands: The operands, outputs first.
    """

    template: str
    operands: tuple[Operand, ...]


_ESCAPES = {"n": "\n", "t": "\t", "r": "\n", "\\": "\\", '"': '"', "'": "'"}
_LETTERS = frozenset("rlhfdn")


def parse_statement(code: Code, start: int, stop: int, macros: Mapping[str, Macro] = MappingProxyType({})) -> Statement:
    """Parses what stands between the parentheses of an ``asm`` statement.

    Args:
        code: The text.
        start: The position behind ``(``.
        stop: The position of ``)``.
        macros: The macros that the template may use.

    Raises:
        Refused: The template holds more than strings and such macros, or an operand has a constraint that PTX does not
            have.
    """
    template, index = _template(code, start, stop, macros)
    operands: list[Operand] = []
    section = 0
    while index < stop:
        section += len(code.text(index))  # `::` opens two sections
        index += 1
        while section <= 2 and index < stop and code.text(index) not in (":", "::"):
            operand, index = _operand(code, index, is_output=section == 1)
            operands.append(operand)
            index += code.text(index) == ","
        while section > 2 and index < stop:
            index += 1  # clobbers
    return Statement(template, tuple(operands))


def _template(code: Code, start: int, stop: int, macros: Mapping[str, Macro]) -> tuple[str, int]:
    """The characters of the strings and macros from a position on, and the position behind them."""
    index, pieces = start, []
    while index < stop and code.text(index) not in (":", "::"):
        name = code.text(index)
        index += 1
        if code.token(index - 1).kind is Kind.STRING:
            pieces.append(_unquoted(name))
            continue
        macro = None if name in code.parameters else macros.get(name)
        closing = code.close_of(index) if code.text(index) == "(" else None
        if macro is None or (macro.parameters is not None and closing is None):
            raise Refused(f"a template with {name} in it, which is no plain string")
        arguments: list[str] = []
        if macro.parameters is not None and closing is not None:
            arguments = [code.one_line(*place) for place in code.arguments(index + 1, closing)]
            index = closing + 1
        body = Code(tokenize(macro.expanded(arguments), directives=False))
        others = {other: macros[other] for other in macros if other != name}
        pieces.append(_template(body, 0, len(body), others)[0])
    return "".join(pieces), index


def _operand(code: Code, index: int, *, is_output: bool) -> tuple[Operand, int]:
    """The operand at a position, and the position behind it."""
    constraint = _unquoted(code.text(index)) if code.token(index).kind is Kind.STRING else ""
    match = re.fullmatch(r"([=+]?)(\w)", constraint)
    closing = code.close_of(index + 1) if code.text(index + 1) == "(" else None
    if match is None or closing is None or match[2] not in _LETTERS or bool(match[1]) != is_output:
        raise Refused(f"an operand that begins with {code.text(index)}")
    expression = code.one_line(index + 2, closing)
    return Operand(match[2], expression, match[1] != "=", is_output), closing + 1


def _unquoted(literal: str) -> str:
    """The characters of a string literal.

    Raises:
        Refused: It is a raw string, or has a prefix or a numeric escape.
    """
    if not literal.startswith('"') or not literal.endswith('"') or len(literal) < 2:
        raise Refused(f"the string {literal[:20]}")
    body = re.sub(r"\\\r?\n", "", literal[1:-1])

    def character(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise Refused(f"the escape \\{match[1]}")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", character, body, flags=re.DOTALL)
