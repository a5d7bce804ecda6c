"""Finds the code that runs in forward and backward.

It starts from the methods of ``ModelNew`` and the autograd functions, and follows names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from harness.scanning.program import Program, children

ENTRY = "ModelNew"
_FUNCTION = "torch.autograd.Function"
_FUNCTION_NAMES = (_FUNCTION, "torch.autograd.function.Function", "torch.autograd.function.InplaceFunction")
_SETUP = ("__init__", "__new__")
_LATER = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef)


class HotPath:
    """The nodes of a program that can run in forward or backward, as far as names show.

    A constructor itself is not included. The functions and classes that it names are, because it
    may create modules that run later.
    """

    def __init__(self, program: Program):
        self._defined: dict[str, list[ast.AST]] = {}
        for node in program.of(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
            if not isinstance(program.parents.get(node), ast.ClassDef):
                self._defined.setdefault(node.name, []).append(node)
        for node in program.of(ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and (target.id == ENTRY or isinstance(node.value, ast.Lambda)):
                    self._defined.setdefault(target.id, []).append(node.value)
        self._hot: set[ast.AST] = set()
        entries = list(self._defined.get(ENTRY, ()))
        if entries:
            entries += [node for node in program.of(ast.ClassDef) if is_function(program, node)]
        self._reach(entries)

    def __contains__(self, node: ast.AST) -> bool:
        return node in self._hot

    def _reach(self, entries: Iterable[ast.AST]) -> None:
        waiting = [(node, False) for node in entries]
        visited: set[ast.AST] = set()
        names: set[str] = {ENTRY}
        while waiting:
            node, runs = waiting.pop()
            if node in visited:
                continue
            visited.add(node)
            if runs:
                self._hot.add(node)
            if isinstance(node, ast.Name) and node.id in self._defined and node.id not in names:
                names.add(node.id)
                waiting.extend((one, not isinstance(one, ast.ClassDef)) for one in self._defined[node.id])
            is_class = isinstance(node, ast.ClassDef)
            for child in children(node):
                if is_class and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    waiting.append((child, child.name not in _SETUP))
                elif is_class:
                    waiting.append((child, False))
                else:
                    waiting.append((child, runs or isinstance(child, _LATER)))


def is_function(program: Program, node: ast.ClassDef) -> bool:
    """Tells whether a class is one of torch's differentiable functions."""
    return any(program.dotted(base) in _FUNCTION_NAMES for base in node.bases)
