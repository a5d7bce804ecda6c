"""Expands the author's macros in the template of an ``asm`` statement."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.emulator.lexer import Kind, Token, tokenize
from harness.emulator.syntax import Code

DEFINE = re.compile(r"#[ \t]*define[ \t]+(?P<name>[A-Za-z_]\w*)(?P<parameters>\([^)]*\))?")
#: The most combinations of definitions that one statement may have.
_MOST_CHOICES = 16


class Refused(Exception):
    """The statement holds something that the emulator does not run; the message names it."""


@dataclass(frozen=True)
class Macro:
    """One definition of a macro.

    Attributes:
        parameters: The names of its parameters; None for a macro without parentheses.
        body: What it stands for.
    """

    parameters: tuple[str, ...] | None
    body: str

    def expanded(self, arguments: list[str]) -> str:
        """Returns the body with arguments in place of the parameters, as text or (``#``) as a string."""
        given = dict(zip(self.parameters or (), arguments, strict=False))
        code = Code(tokenize(self.body, directives=False))
        texts = [code.text(position) for position in range(len(code))]
        for position, text in enumerate(texts):
            if text in given and position and texts[position - 1] == "#":
                texts[position - 1] = ""
                texts[position] = '"' + re.sub(r'([\\"])', r"\\\1", given[text]) + '"'
            elif text in given and code.is_name(position):
                texts[position] = given[text]
        return " ".join(texts)


def definitions(tokens: list[Token]) -> dict[str, list[Macro]]:
    """Returns every definition of every macro of a text. Branches of ``#if`` may define one name twice."""
    found: dict[str, list[Macro]] = {}
    for token in tokens:
        macro = DEFINE.match(token.text) if token.kind is Kind.DIRECTIVE else None
        if macro is not None:
            names = None if macro["parameters"] is None else tuple(re.findall(r"[A-Za-z_]\w*", macro["parameters"]))
            found.setdefault(macro["name"], []).append(Macro(names, token.text[macro.end() :]))
    return found


def choices(code: Code, start: int, stop: int, defined: Mapping[str, list[Macro]]) -> Iterator[dict[str, Macro]]:
    """Yields each choice of one definition for every macro that a template may use; at least one choice."""
    used: list[str] = []
    pending = [code.text(position) for position in range(start, stop) if code.is_name(position)]
    while pending:
        name = pending.pop()
        if name in defined and name not in used:
            used.append(name)
            pending += [word for macro in defined[name] for word in re.findall(r"[A-Za-z_]\w*", macro.body)]
    chosen = itertools.product(*(defined[name] for name in used))
    for number, macros in enumerate(chosen):
        if number == _MOST_CHOICES:
            raise Refused("a template whose macros have many definitions")
        yield dict(zip(used, macros, strict=True))
