"""Reads from a solution's text which kernels it writes in Triton, and which packages it must have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.device.kernel_packages import INSTALL, may_use
from harness.scanning.program import Program
from harness.scanning.scan import readable

_DECORATORS = frozenset({"triton.jit", "triton.runtime.jit.jit", "triton.experimental.gluon.jit"})


@dataclass(frozen=True)
class KernelLanguages:
    """The kernels of a solution's text, and the packages that it must have.

    Attributes:
        triton: The functions that it makes Triton kernels.
        needs: The line that imports each package of ``INSTALL`` without an alternative.
    """

    triton: frozenset[str] = frozenset()
    needs: dict[str, int] = field(default_factory=dict)


def kernel_languages(text: str) -> KernelLanguages:
    """Reads a solution's text without running it.

    A comment, a string or an unused name is no kernel. An import inside ``try``, ``if`` or a
    function has an alternative. The result is empty for a text that the static scan skips.

    Args:
        text: The solution's source.
    """
    tree = readable(text) if may_use(text) else None
    if not isinstance(tree, ast.Module):
        return KernelLanguages()
    program = Program(tree)
    needs: dict[str, int] = {}
    for line, module in _imports(program):
        package = module.partition(".")[0]
        if package in INSTALL:
            needs.setdefault(package, line)
    return KernelLanguages(frozenset(_triton_kernels(program)), needs)


def _imports(program: Program) -> Iterator[tuple[int, str]]:
    """Yields line and module of each import that runs whenever the file does."""
    for node in program.of(ast.Import, ast.ImportFrom):
        if not isinstance(program.parents.get(node), ast.Module):
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif not node.level:
            yield node.lineno, node.module or ""


def _triton_kernels(program: Program) -> Iterator[str]:
    """Yields functions under ``@triton.jit``, and those that a call of ``triton.jit`` wraps."""
    for node in program.of(ast.FunctionDef):
        decorators = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
        if any(program.dotted(one) in _DECORATORS for one in decorators):
            yield node.name
    for node in program.of(ast.Call):
        if program.dotted(node.func) in _DECORATORS:
            yield from (one.id for one in node.args if isinstance(one, ast.Name))
