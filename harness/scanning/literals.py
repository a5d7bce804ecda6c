"""Evaluates expressions of string constants, and keeps the solution's line of each line of text.

The evaluation follows names, arguments and results of the file's own functions, ``+``, ``replace``,
``format``, ``join`` and f-strings. It leaves out what it cannot follow. It ignores the scope of
names: if several values are assigned to one name, the text holds all of them, one below the other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from harness.scanning.program import Program, inside, literal

MOST_CHARACTERS = 1 << 20
_DEEPEST = 60
_LARGEST_NUMBER = 10**18
_FIELD = re.compile(r"\{\{|\}\}|\{(\w{0,80})[^{}\n]{0,80}\}")
_KEPT = ("strip", "lstrip", "rstrip", "encode", "decode", "substitute", "safe_substitute", "expandtabs", "format_map")
_FIRST_ARGUMENT = ("dedent", "indent", "cleandoc", "str", "Template", "Path", "fspath")


class Located(NamedTuple):
    """A text with its place in a solution.

    Attributes:
        text: The text.
        lines: The solution's line of each line of the text.
    """

    text: str
    lines: Sequence[int]


NOTHING = Located("", ())


def joined(pieces: Iterable[Located]) -> Located:
    """Concatenates texts.

    A line that consists of several texts gets the place of its first characters.
    """
    texts: list[str] = []
    lines: list[int] = []
    begun = False  # whether the current line has any characters
    for text, places in pieces:
        if not text:
            continue
        if begun:
            lines.extend(places[1:])
        else:
            lines[-1:] = places
        begun = not text.endswith("\n")
        texts.append(text)
    return Located("".join(texts), lines)


class Literals:
    """Evaluates string expressions of one program.

    Args:
        program: The program.
        text: The program's text.

    Attributes:
        visited: The nodes that contributed text.
        is_cut: Whether some texts were left out because they grew too large.
    """

    def __init__(self, program: Program, text: str):
        self._program = program
        self._rows = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._known: dict[str, Located] = {}
        self._constants: dict[ast.AST, Located] = {}
        self._entered: set[str] = set()
        self._left = MOST_CHARACTERS
        self.visited: set[ast.AST] = set()
        self.is_cut = False

    def of(self, node: ast.AST | None, depth: int = 0) -> Located:
        """Returns the text of an expression; empty if it cannot be evaluated."""
        if node is None or depth > _DEEPEST:
            return NOTHING
        depth += 1
        if isinstance(node, ast.Constant):
            return self._constant(node)
        if isinstance(node, ast.JoinedStr):
            return self._format_string(node, depth)
        if isinstance(node, ast.Name):
            return self._name(node.id, depth)
        if isinstance(node, ast.Attribute):
            return self._name(node.attr, depth)
        if isinstance(node, ast.BinOp):
            return self._joined([self.of(one, depth) for one in _operands(node)])
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        if isinstance(node, ast.IfExp):
            return self._below([node.body, node.orelse], depth)
        if isinstance(node, ast.BoolOp):
            return self._below(node.values, depth)
        if isinstance(node, ast.List | ast.Tuple):
            return self._below(node.elts, depth)
        if isinstance(node, ast.Dict):
            return self._below(node.values, depth)
        if isinstance(node, ast.Subscript | ast.Starred | ast.FormattedValue):
            return self.of(node.value, depth)
        return NOTHING

    def _joined(self, pieces: Sequence[Located]) -> Located:
        """Concatenates texts while the limit allows it."""
        return joined(pieces) if self._has_room(sum(len(piece.text) for piece in pieces)) else NOTHING

    def _has_room(self, characters: int) -> bool:
        """Counts characters against the limit and tells whether they fit."""
        if characters > self._left:
            self.is_cut = True
            return False
        self._left -= characters
        return True

    def _below(self, nodes: Iterable[ast.expr], depth: int) -> Located:
        """Puts texts one below the other."""
        pieces: list[Located] = []
        for node in nodes:
            piece = self.of(node, depth)
            if piece.text:
                end = [] if piece.text.endswith("\n") else [Located("\n", (piece.lines[-1], piece.lines[-1]))]
                pieces += [piece, *end]
        return self._joined(pieces)

    def _constant(self, node: ast.Constant) -> Located:
        value = node.value
        if isinstance(value, int | float) and abs(value) < _LARGEST_NUMBER:
            return Located(str(value), (node.lineno,))
        if not isinstance(value, str):
            return NOTHING
        if node not in self._constants:
            self.visited.add(node)
            self._constants[node] = Located(value, self._lines(node, value, 0))
        return self._constants[node]

    def _lines(self, node: ast.expr, value: str, before: int) -> Sequence[int]:
        """Returns the solution's lines of a constant inside a literal.

        The constant follows a number of line breaks (``before``) of that literal.
        """
        last = node.end_lineno or node.lineno
        first = node.lineno + before
        if self._rows[node.lineno - 1].endswith('"""\\') or self._rows[node.lineno - 1].endswith("'''\\"):
            first += 1
        return [min(first + index, last) for index in range(value.count("\n") + 1)]

    def _format_string(self, node: ast.JoinedStr, depth: int) -> Located:
        # Before Python 3.12 a piece has the place of the whole literal, so lines count from the
        # literal's start.
        self.visited.add(node)
        pieces: list[Located] = []
        breaks = 0
        for value in node.values:
            if isinstance(value, ast.Constant):
                self.visited.add(value)
                pieces.append(Located(str(value.value), self._lines(node, str(value.value), breaks)))
                breaks += str(value.value).count("\n")
            else:
                pieces.append(self.of(value, depth))
        return self._joined(pieces)

    def _name(self, name: str, depth: int) -> Located:
        if name in self._known:
            return self._known[name]
        if name in self._entered:
            return NOTHING
        self._entered.add(name)
        values = self._program.bindings.get(name, [])
        found = self.of(values[0], depth) if len(values) == 1 else self._below(values, depth)
        self._entered.discard(name)
        self._known[name] = found
        return found

    def _call(self, node: ast.Call, depth: int) -> Located:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if isinstance(function, ast.Attribute):
            if name == "join" and node.args:
                return self._below(node.args[:1], depth)
            if name == "replace" and len(node.args) >= 2:
                return self._replaced(self.of(function.value, depth), node, depth)
            if name == "format":
                return self._formatted(self.of(function.value, depth), node, depth)
            if name in _KEPT:
                return self.of(function.value, depth)
        if name in _FIRST_ARGUMENT and node.args:
            return self.of(node.args[0], depth)
        return self._name(name, depth)

    def _replaced(self, base: Located, node: ast.Call, depth: int) -> Located:
        old, new = self.of(node.args[0], depth), self.of(node.args[1], depth)
        if not old.text or not new.text:
            return base
        return self._spliced(base, re.compile(re.escape(old.text)), lambda _: new)

    def _formatted(self, base: Located, node: ast.Call, depth: int) -> Located:
        fields = {keyword.arg: self.of(keyword.value, depth) for keyword in node.keywords}
        fields |= {str(index): self.of(value, depth) for index, value in enumerate(node.args)}

        def filled(match: re.Match[str]) -> Located:
            text = match.group(0)
            return Located(text[0], (0,)) if text in ("{{", "}}") else fields.get(match.group(1) or "0", NOTHING)

        return self._spliced(base, _FIELD, filled)

    def _spliced(self, base: Located, what: re.Pattern[str], new: Callable[[re.Match[str]], Located]) -> Located:
        """Returns a text with each match replaced."""
        pieces: list[Located] = []
        position = breaks = 0
        if not self._has_room(len(base.text)):
            return NOTHING

        def keep(stop: int) -> int:
            text = base.text[position:stop]
            more = text.count("\n")
            pieces.append(Located(text, base.lines[breaks : breaks + more + 1]))
            return breaks + more

        for match in what.finditer(base.text):
            breaks = keep(match.start())
            text, lines = new(match)
            pieces.append(Located(text, [line or base.lines[breaks] for line in lines]))
            if not self._has_room(len(text)):
                return NOTHING
            breaks += match.group(0).count("\n")
            position = match.end()
        keep(len(base.text))
        return self._joined(pieces)


def _operands(node: ast.BinOp) -> list[ast.expr]:
    """Returns the operands of a chain of ``+``; for ``%`` and ``*`` the left operand."""
    found: list[ast.expr] = []
    current: ast.expr = node
    while isinstance(current, ast.BinOp):
        if isinstance(current.op, ast.Add):
            found.append(current.right)
        current = current.left
    return [current, *reversed(found)]


class CudaText(NamedTuple):
    """A C++ or CUDA text of a solution.

    Attributes:
        located: The text and its lines.
        node: The node where the program passes it.
        what: The argument that takes it; empty for a constant that looks like C++ and is passed
            nowhere.
    """

    located: Located
    node: ast.expr
    what: str


_BUILDERS = {
    "load_inline": ("name", "cpp_sources", "cuda_sources"),
    "load": ("name", "sources"),
    "RawModule": ("code",),
    "RawKernel": ("code",),
    "_compile_kernel": ("kernel_source",),
}
_SOURCE_ARGUMENTS = ("cpp_sources", "cuda_sources", "sources", "code", "kernel_source")
_LOOKS_LIKE_CUDA = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]|__global__\s+\w|<<<[^\n]{0,200}?>>>", re.MULTILINE)


def sources(program: Program, literals: Literals) -> list[CudaText]:
    """Returns the C++ and CUDA texts of a program.

    The sources that it passes to a compiler come first, then other constants that look like C++.
    """
    found: list[CudaText] = []
    for call in program.of(ast.Call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        named = program.dotted(call.func).rpartition(".")[2] or name
        if named not in _BUILDERS or (named == "load" and "cpp_extension" not in program.dotted(call.func)):
            continue
        given = dict(zip(_BUILDERS[named], call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        found += [CudaText(literals.of(given[what]), given[what], what) for what in _SOURCE_ARGUMENTS if what in given]
    docstrings = {node.value for node in program.of(ast.Expr) if literal(node.value) is not None}
    for node in program.of(ast.JoinedStr, ast.Constant):
        if node in literals.visited or node in docstrings:
            continue
        text = literal(node) if isinstance(node, ast.Constant) else "".join(literal(one) or "" for one in node.values)
        if text and _LOOKS_LIKE_CUDA.search(text):
            found.append(CudaText(literals.of(node), node, ""))
    return found


def is_empty(node: ast.expr) -> bool:
    """Returns whether an argument means that there is no source: ``""``, ``None``, ``[]``."""
    texts = [one for one in inside(node) if not isinstance(one, ast.List | ast.Tuple)]
    return all(isinstance(one, ast.Constant) and not one.value for one in texts)
