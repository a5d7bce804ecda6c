"""Parses PTX text into labels, declarations, scopes and instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from harness.emulator.ptx.macros import Refused


@dataclass(frozen=True)
class Address:
    """``[base+offset]``; the base is a register or a number."""

    base: str
    offset: int


@dataclass(frozen=True)
class TensorAddress:
    """``[map, {x, y}]``: the register with a tensor map's address, and coordinates."""

    base: str
    coordinates: tuple[str, ...]


@dataclass(frozen=True)
class Vector:
    """``{a, b}``: several registers or numbers."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """``p|q``: two results."""

    first: str
    second: str


Argument = str | Address | TensorAddress | Vector | Pair


@dataclass(frozen=True)
class Instruction:
    """An instruction.

    Attributes:
        opcode: The name with its modifiers, such as ``add.f32``.
        arguments: The operands.
        guard: The predicate, with ``!`` in front if it is negated; empty if there is none.
    """

    opcode: str
    arguments: tuple[Argument, ...]
    guard: str


@dataclass(frozen=True)
class Declaration:
    """``.reg .b32 a, b;``."""

    type: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Label:
    """``AGAIN:``."""

    name: str


@dataclass(frozen=True)
class Scope:
    """``{`` with what stands in it."""

    items: tuple[Item, ...] = field(default=())


Item = Instruction | Declaration | Label | Scope

#: A whole number, decimal or hexadecimal; one that begins with 0 would be octal.
INTEGER = r"-?(?:0[xX][0-9a-fA-F]+|0|[1-9]\d*)"
_NAME = r"[A-Za-z_$%][\w$%.]*"
_LABEL = re.compile(r"([A-Za-z_$][\w$%]*)\s*:(?!:)")
_GUARD = re.compile(r"@(!?)\s*([\w$%]+)\s*")
_OPCODE = re.compile(r"[a-z][\w.:]*")


def parse_text(text: str) -> tuple[Item, ...]:
    """Parses PTX.

    Raises:
        Refused: The text is malformed, or has a directive other than ``.reg``.
    """
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    items, rest = _items(plain, 0)
    if rest < len(plain):
        raise Refused("a closing brace without an opening one")
    return items


def _items(text: str, at: int) -> tuple[tuple[Item, ...], int]:
    """The items from a place on up to a closing brace, and the place of that brace."""
    items: list[Item] = []
    while True:
        at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n;"))
        if at == len(text) or text[at] == "}":
            return tuple(items), at
        if text[at] == "{":
            inner, end = _items(text, at + 1)
            if end == len(text):
                raise Refused("an opening brace without a closing one")
            items.append(Scope(inner))
            at = end + 1
        elif label := _LABEL.match(text, at):
            items.append(Label(label[1]))
            at = label.end()
        else:
            end = text.find(";", at)
            end = len(text) if end < 0 else end
            words = " ".join(text[at:end].split())
            items.append(_declaration(words) if words.startswith(".") else _instruction(words))
            at = end


def _declaration(words: str) -> Declaration:
    match = re.fullmatch(rf"\.reg\s*\.(\w+)\s+({_NAME}(?:<\d+>)?(?:\s*,\s*{_NAME})*)", words)
    if match is None:
        raise Refused(words[:60])
    names = tuple(name.strip() for name in match[2].split(","))
    if several := re.fullmatch(r"(.+)<(\d+)>", names[0]):
        names = tuple(f"{several[1]}{number}" for number in range(min(int(several[2]), 256)))
    return Declaration(match[1], names)


def _instruction(words: str) -> Instruction:
    guard = _GUARD.match(words)
    rest = words[guard.end() :] if guard else words
    opcode = _OPCODE.match(rest)
    if opcode is None:
        raise Refused(words[:60])
    listed = rest[opcode.end() :].strip()
    arguments = tuple(_argument(one, words) for one in _split(listed)) if listed else ()
    return Instruction(opcode[0], arguments, f"{guard[1]}{guard[2]}" if guard else "")


def _split(listed: str) -> list[str]:
    """The arguments of a list, at the commas outside brackets."""
    found, depth, begun = [], 0, 0
    for at, character in enumerate(listed):
        depth += (character in "{[") - (character in "}]")
        if character == "," and depth == 0:
            found.append(listed[begun:at])
            begun = at + 1
    return [one.strip() for one in (*found, listed[begun:])]


def _argument(text: str, words: str) -> Argument:
    if match := re.fullmatch(r"\[\s*([\w$%.]+)\s*(?:\+\s*(-?\w+)\s*|(-\s*\d+)\s*)?\]", text):
        offset = (match[2] or match[3] or "0").replace(" ", "")
        if not re.fullmatch(INTEGER, offset):
            raise Refused(f"the address {text}")
        return Address(match[1], int(offset, 0))
    if match := re.fullmatch(r"\[\s*([\w$%.]+)\s*,\s*\{([^{}]*)\}\s*\]", text):
        return TensorAddress(match[1], tuple(one.strip() for one in match[2].split(",")))
    if text.startswith("{") and text.endswith("}"):
        return Vector(tuple(one.strip() for one in text[1:-1].split(",")))
    if match := re.fullmatch(rf"({_NAME})\s*\|\s*({_NAME})", text):
        return Pair(match[1], match[2])
    if re.fullmatch(r"[-!]?[\w$%.]+", text):
        return text
    raise Refused(words[:60])
