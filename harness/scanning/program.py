"""A parsed Python text: its nodes by type, their parents, and the meaning of its names.

All functions here use loops instead of recursion, since a text may nest as deeply as Python's
parser allows.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from typing import Any

_MOST_PARTS = 32


def parsed(text: str) -> ast.Module | None:
    """Returns the tree of a Python text; None if it does not parse or is nested too deeply."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about escapes such as "\d" concern the author
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def inside(*roots: ast.AST) -> Iterator[ast.AST]:
    """Yields nodes and all their descendants, in the order of the text."""
    waiting = list(reversed(roots))
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(list(children(node))))


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the direct children of a node, except ``Load`` and the like."""
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            yield from (item for item in value if isinstance(item, ast.AST))
        elif isinstance(value, ast.AST) and value._fields:
            yield value


class Program:
    """A parsed program.

    Args:
        tree: The program's tree.

    Attributes:
        nodes: Every node by its type, in the order of the text.
        parents: The parent of each node.
        origins: The meaning of each local name that was imported, such as ``torch.nn.functional``
            for ``F``, or that was assigned from such a name.
        bindings: The expressions bound to each name and attribute anywhere: assigned values, passed
            arguments, and the results of functions of that name.
    """

    def __init__(self, tree: ast.Module):
        self.nodes: dict[type[ast.AST], list[Any]] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.origins: dict[str, str] = {}
        self.bindings: dict[str, list[ast.expr]] = {}
        for node in inside(tree):
            self.nodes.setdefault(type(node), []).append(node)
            for child in children(node):
                self.parents[child] = node
        self._import()
        self._bind()

    def of(self, *types: type[ast.AST]) -> Iterator[Any]:
        """Yields every node of the given types."""
        for one in types:
            yield from self.nodes.get(one, ())

    def dotted(self, node: ast.AST | None) -> str:
        """Returns the full name of an expression, such as ``torch.cuda.Event``.

        The method follows imports, aliases, ``getattr(torch, "tanh")``, ``__import__("os")`` and
        ``sys.modules["os"]``. The name is empty if the expression leads to no import.
        """
        parts: list[str] = []
        while node is not None and len(parts) <= _MOST_PARTS:
            if isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Name):
                origin = self.origins.get(node.id)
                return ".".join([origin, *reversed(parts)]) if origin else ""
            elif (named := self._named(node)) is not None:
                name, node = named
                if node is None:
                    return ".".join([name, *reversed(parts)])
                parts.append(name)
            else:
                return ""
        return ""

    def _named(self, node: ast.AST) -> tuple[str, ast.AST | None] | None:
        """Returns the literal name behind a call or index, and its owner (None: a module)."""
        if isinstance(node, ast.Call) and node.args:
            called = self.builtin(node.func)
            if called == "getattr" and len(node.args) > 1 and (name := literal(node.args[1])):
                return name, node.args[0]
            if (called == "__import__" or self._is_import(node.func)) and (name := literal(node.args[0])):
                return name, None
        if isinstance(node, ast.Subscript) and (name := literal(node.slice)):
            value = node.value
            if isinstance(value, ast.Attribute) and value.attr == "modules" and isinstance(value.value, ast.Name):
                return (name, None) if self.origins.get(value.value.id) == "sys" else None
        return None

    def _is_import(self, function: ast.AST) -> bool:
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            return function.attr == "import_module" and self.origins.get(function.value.id) == "importlib"
        return isinstance(function, ast.Name) and self.origins.get(function.id) == "importlib.import_module"

    def builtin(self, node: ast.AST) -> str:
        """Returns the built-in function that an expression names; empty for anything else."""
        if isinstance(node, ast.Name):
            origin = self.origins.get(node.id, "")
            return node.id if not origin else origin.removeprefix("builtins.") if origin.startswith("builtins.") else ""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return node.attr if self.origins.get(node.value.id) == "builtins" else ""
        return ""

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields the ancestors of a node, the nearest first."""
        while (outer := self.parents.get(node)) is not None:
            yield outer
            node = outer

    def _import(self) -> None:
        for node in self.of(ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                self.origins[bound] = alias.name if alias.asname else bound
        for node in self.of(ast.ImportFrom):
            for alias in node.names:
                self.origins[alias.asname or alias.name] = f"{node.module or '.'}.{alias.name}"

    def _bind(self) -> None:
        for target, value in self._assignments():
            name = target.id if isinstance(target, ast.Name) else target.attr
            self.bindings.setdefault(name, []).append(value)
            if isinstance(target, ast.Name) and isinstance(value, ast.Attribute | ast.Name | ast.Call):
                origin = self.dotted(value)
                if origin and name not in self.origins:
                    self.origins[name] = origin
        for node in self.of(ast.Return):
            function = next((one for one in self.above(node) if isinstance(one, ast.FunctionDef)), None)
            if function is not None and node.value is not None:
                self.bindings.setdefault(function.name, []).append(node.value)
        self._bind_arguments()

    def _assignments(self) -> Iterator[tuple[ast.Name | ast.Attribute, ast.expr]]:
        for node in self.of(ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        for node in self.of(ast.AnnAssign, ast.AugAssign, ast.NamedExpr):
            if node.value is not None:
                yield from _pairs(node.target, node.value)

    def _bind_arguments(self) -> None:
        """Binds the parameters of the file's functions to the arguments passed for them."""
        parameters: dict[str, list[str]] = {}
        for node in self.of(ast.FunctionDef):
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            parameters[node.name] = names[1:] if names[:1] in (["self"], ["cls"]) else names
            for name, default in zip(reversed(names), reversed(node.args.defaults), strict=False):
                self.bindings.setdefault(name, []).append(default)
        for node in self.of(ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name not in parameters:
                continue
            passed = [*zip(parameters[name], node.args, strict=False), *((one.arg, one.value) for one in node.keywords)]
            for parameter, value in passed:
                if parameter and isinstance(value, ast.expr):
                    self.bindings.setdefault(parameter, []).append(value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.Name | ast.Attribute, ast.expr]]:
    """Yields each assigned name or attribute with its value.

    Splits ``a, b = c, d`` into two pairs.
    """
    if isinstance(target, ast.Name | ast.Attribute):
        yield target, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, other in zip(target.elts, value.elts, strict=True):
            if isinstance(one, ast.Name | ast.Attribute):
                yield one, other


def literal(node: ast.AST | None) -> str | None:
    """Returns the text of a string constant; None for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def arguments(call: ast.Call) -> list[ast.expr]:
    """Returns all arguments of a call."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]
