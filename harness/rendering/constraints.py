"""Evaluates the rules between parameters, a small expression language that is never executed.

A rule is a Python expression. It may contain parameter names, numbers, strings, booleans, tuples of
these, arithmetic (``+ - * // / %``), comparisons (also ``in``) and ``and``, ``or``, ``not``. The
module parses it with ``ast`` and walks the tree.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import TemplateError, suggestion
from harness.rendering.values import Value

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda member, members: operator.contains(members, member),
    ast.NotIn: lambda member, members: not operator.contains(members, member),
}


@dataclass(frozen=True)
class Constraint:
    """A rule that every setting of a template must satisfy.

    Attributes:
        rule: The expression, as declared.
        message: What a violation means, for the user.
    """

    rule: str
    message: str

    def holds(self, settings: Mapping[str, Value], where: str) -> bool:
        """Returns whether the rule is true for these settings.

        Args:
            settings: The value of every parameter.
            where: The file that declares the rule, for messages.

        Raises:
            TemplateError: The rule is malformed, names an unknown parameter or cannot be computed.
        """
        return bool(_evaluated(_parsed(self.rule, where), settings, f"{where}: constraint {self.rule!r}"))

    def names(self, where: str) -> frozenset[str]:
        """Returns the parameters that the rule mentions.

        Raises:
            TemplateError: The rule is malformed.
        """
        tree = _parsed(self.rule, where)
        return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def number(rule: str, settings: Mapping[str, Value], where: str) -> int:
    """Returns the value of an expression of parameters, rounded down.

    Args:
        rule: The expression.
        settings: The value of every parameter.
        where: What declares it, for messages.

    Raises:
        TemplateError: The expression is malformed, or its value is no number from 0 on.
    """
    value = _evaluated(_parsed(rule, where), settings, f"{where}: {rule!r}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise TemplateError(f"{where}: {rule!r} is {value!r} for some settings; it must be a number from 0 on")
    return int(value)


@functools.lru_cache(maxsize=1024)  # a search evaluates a rule for every setting
def _parsed(rule: str, where: str) -> ast.expr:
    try:
        return ast.parse(rule, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise TemplateError(f"{where}: constraint {rule!r} is not an expression: {error}") from None


def _evaluated(node: ast.expr, settings: Mapping[str, Value], where: str) -> object:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Name(id=name):
            if name not in settings:
                raise TemplateError(f"{where} names an unknown parameter {name!r}.{suggestion(name, settings)}")
            return settings[name]
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return tuple(_evaluated(element, settings, where) for element in elements)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _evaluated(operand, settings, where)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _applied(operator.sub, 0, _evaluated(operand, settings, where), where)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_evaluated(value, settings, where) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_evaluated(value, settings, where) for value in values)
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _ARITHMETIC:
            function = _ARITHMETIC[type(operation)]
            return _applied(function, _evaluated(left, settings, where), _evaluated(right, settings, where), where)
        case ast.Compare():
            return _compared(node, settings, where)
    raise TemplateError(
        f"{where} uses {ast.unparse(node)!r}. Allowed: parameter names, numbers, strings, tuples, "
        "+ - * // / %, comparisons, in, and, or, not."
    )


def _compared(node: ast.Compare, settings: Mapping[str, Value], where: str) -> bool:
    """Evaluates a chain such as ``1 <= a < b``, with each operand computed once."""
    left = _evaluated(node.left, settings, where)
    for operation, comparator in zip(node.ops, node.comparators, strict=True):
        function = _COMPARISONS.get(type(operation))
        if function is None:
            raise TemplateError(f"{where} uses {ast.unparse(node)!r}. Compare with == != < <= > >= in, not in.")
        right = _evaluated(comparator, settings, where)
        if not _applied(function, left, right, where):
            return False
        left = right
    return True


def _applied(function: Callable[[Any, Any], object], left: object, right: object, where: str) -> object:
    # A string times a number is text of any length, and no rule needs it.
    if isinstance(left, str) != isinstance(right, str) and not isinstance(right, tuple):
        raise TemplateError(f"{where} mixes text and numbers: {left!r} and {right!r}.")
    try:
        return function(left, right)
    except (TypeError, ZeroDivisionError, OverflowError, ValueError) as error:
        raise TemplateError(f"{where} cannot be computed for {left!r} and {right!r}: {error}") from None
