"""Finds the integers in a problem's text that set its sizes, so that a smaller case can be made of it.

These are the values of module-level constants, and literals in ``get_inputs`` and
``get_init_inputs``. A literal has a constant's name, too: ``get_inputs[0]`` is the first integer
that the text of ``get_inputs`` contains.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: Functions whose integer literals are constants.
FUNCTIONS = ("get_inputs", "get_init_inputs")
#: The least value that is taken for a size, and the most parts of a list that is computed.
_LEAST, _MOST_PARTS = 3, 1000
#: The largest base and exponent of a power that is computed.
_MOST_BASE, _MOST_EXPONENT = 1 << 16, 40
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}


@dataclass(frozen=True)
class Extent:
    """An integer of a problem's text.

    Attributes:
        name: Name of the constant.
        index: Position in the constant's tuple or list; None for a plain integer.
        value: Its value.
    """

    name: str
    index: int | None
    value: int


class Extents:
    """All extents of a problem.

    Args:
        source: The problem's text, which must be valid Python.

    Attributes:
        found: The extents, in the order of the text.
    """

    def __init__(self, source: str):
        self._nodes = list(_values(ast.parse(source)))
        times = Counter(name for name, _ in self._nodes)
        self.found: tuple[Extent, ...] = tuple(
            Extent(name, index, value)
            for name, node, whole in self._folded({})
            for index, value in _literals(node, whole)
            if value >= _LEAST and times[name] == 1  # a case would give all assignments one value
        )

    def constants(self, values: Mapping[Extent, int]) -> dict[str, Any]:
        """Returns the constants that give extents other values, and no others."""
        changed = {one: value for one, value in values.items() if value != one.value}
        names = {one.name for one in changed}
        return {name: whole for name, _, whole in self._folded(changed) if name in names}

    def _folded(self, changed: Mapping[Extent, int]) -> Iterator[tuple[str, ast.expr, Any]]:
        """Yields the constants with their expressions and values, some extents being changed."""
        known: dict[str, Any] = {}
        for name, node in self._nodes:
            whole = _value(node, known)
            if whole is None:
                continue
            new = {one.index: value for one, value in changed.items() if one.name == name}
            if None in new:
                whole = new[None]
            elif new:
                whole = type(whole)(new.get(index, part) for index, part in enumerate(whole))
            known[name] = whole
            yield name, node, whole


def as_written(source: str, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Returns constants with a tuple in place of a list where a problem's text assigns a tuple.

    JSON and TOML have no tuples.
    """
    tuples = {name for name, node in _values(ast.parse(source)) if isinstance(node, ast.Tuple)}
    return {
        name: tuple(value) if name in tuples and isinstance(value, list) else value for name, value in constants.items()
    }


def literals_of(function: ast.FunctionDef) -> list[ast.Constant]:
    """Returns the integer literals of a function, in the order of the text."""
    found = [node for node in ast.walk(function) if isinstance(node, ast.Constant) and type(node.value) is int]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def literal_name(function: str, index: int) -> str:
    """Returns the name of a literal, as constants of cases have it."""
    return f"{function}[{index}]"


def _literals(node: ast.expr, whole: Any) -> Iterator[tuple[int | None, int]]:
    """Yields the integers of a constant that its own text sets, with their positions."""
    if type(whole) is int:
        yield None, whole
    elif type(whole) in (tuple, list):
        parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node] * len(whole)
        for index, (part, value) in enumerate(zip(parts, whole, strict=True)):
            if type(value) is int and not isinstance(part, ast.Name):
                yield index, value


def _values(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yields the constants of a module and the literals of its functions, with their expressions."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _assigned(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _assigned(node.target, node.value)
        elif isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS:
            for index, literal in enumerate(literals_of(node)):
                yield literal_name(node.name, index), literal


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, part in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, part)


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """Returns the value of an expression of integers, tuples and lists; None for any other."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Tuple | ast.List):
        parts = [_value(part, known) for part in node.elts]
        if any(part is None for part in parts):
            return None
        return tuple(parts) if isinstance(node, ast.Tuple) else parts
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, known), _value(node.right, known)
        if type(left) is int and type(right) is int and type(node.op) in _OPERATIONS:
            if isinstance(node.op, ast.FloorDiv) and right == 0:
                return None
            is_power = isinstance(node.op, ast.LShift | ast.Pow)
            if is_power and not (abs(left) <= _MOST_BASE and 0 <= right <= _MOST_EXPONENT):
                return None
            return _OPERATIONS[type(node.op)](left, right)
        if type(left) in (tuple, list) and type(right) is int and isinstance(node.op, ast.Mult):
            return left * right if len(left) * right <= _MOST_PARTS else None
    return None
