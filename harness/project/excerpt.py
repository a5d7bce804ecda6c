"""Extracts the part of a problem's source that its ``Model`` needs, without running it."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import ProblemError
from harness.project.extents import Extents
from harness.project.problems import UNPARSABLE, Problem
from harness.system.text import is_costly_to_parse

_LOCAL_SCOPES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Excerpt:
    """The code that a separate file needs to construct and run a problem's ``Model``.

    Attributes:
        imports: Its imports, one statement each, in order.
        text: The rest, as it stands in the file, with the comments right above each statement.
        constants: Module-level constants that ``Model``, or a function that it calls, reads.
        signature: Arguments of ``forward`` as declared, ``self`` first; ``self, *inputs`` if they
            are unknown.
        call: The same arguments as a caller passes them on.
        future: The statement ``from __future__`` of the file, without which its annotations may
            not be evaluated, or an empty string.
    """

    imports: tuple[str, ...]
    text: str
    constants: frozenset[str]
    signature: str
    call: str
    future: str


def model_excerpt(problem: Problem) -> Excerpt:
    """Extracts the part of a problem's file that its ``Model`` needs.

    Raises:
        ProblemError: The file has an error that only the compiler sees, such as a ``return``
            outside a function.
    """
    tree = ast.parse(problem.source, str(problem.path))
    try:
        scopes = symtable.symtable(problem.source, str(problem.path), "exec").get_children()
    except SyntaxError as error:
        raise ProblemError(f"{problem.path}:{error.lineno}: not Python: {error.msg}") from None
    statements = [node for node in tree.body if not _is_left_out(node)]
    needed = _needed_names("Model", statements, scopes)
    kept = [node for node in statements if not _bound(node) or _bound(node) & needed]
    lines = problem.source.split("\n")
    imports = [node for node in kept if isinstance(node, ast.Import | ast.ImportFrom)]
    others = [node for node in kept if not isinstance(node, ast.Import | ast.ImportFrom)]
    signature, call = _forward_arguments(tree)
    return Excerpt(
        imports=tuple(ast.unparse(node) for node in imports),
        text=_text_of(others, lines),
        constants=frozenset(needed & problem.constants),
        signature=signature,
        call=call,
        future="".join(ast.unparse(node) + "\n" for node in tree.body if _is_future(node)),
    )


def hidden_constants(problem: Problem) -> list[str]:
    """Lists the constants that a case replaces and ``Model`` reads.

    A solution in a separate file does not see these replacements.

    Raises:
        ProblemError: The file is not valid Python.
    """
    replaced = {name for settings in problem.cases.values() for name in settings}
    return sorted(model_excerpt(problem).constants & replaced)


def own_constants(source: str, constants: Mapping[str, Any]) -> dict[str, int]:
    """Finds constants of a case that a solution's ``ModelNew`` reads from its own text, with another value.

    Args:
        source: The solution's text.
        constants: The constants that the case sets.

    Returns:
        Integers that the text assigns, by name; none if the text would take long to parse.
    """
    if is_costly_to_parse(source):
        return {}
    try:
        tree = ast.parse(source)
        scopes = symtable.symtable(source, "<solution>", "exec").get_children()
        needed = _needed_names("ModelNew", tree.body, scopes) & constants.keys()
        values = {one.name: one.value for one in Extents(source).found if one.index is None} if needed else {}
    except UNPARSABLE:
        return {}
    return {name: values[name] for name in sorted(needed & values.keys()) if values[name] != constants[name]}


def _is_left_out(node: ast.stmt) -> bool:
    """Returns whether the excerpt leaves out a statement.

    It leaves out docstrings, ``from __future__`` and code that only runs if the file is the
    program.
    """
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if _is_future(node):
        return True
    return isinstance(node, ast.If) and any(
        isinstance(leaf, ast.Name) and leaf.id == "__name__" for leaf in ast.walk(node.test)
    )


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _needed_names(of: str, statements: Sequence[ast.stmt], scopes: Sequence[symtable.SymbolTable]) -> set[str]:
    """Returns the names that a definition needs.

    These are its own name, the names that statements without a binding read, and in turn the names
    that those are made of.
    """
    by_name: dict[str, list[symtable.SymbolTable]] = {}
    for scope in scopes:
        by_name.setdefault(scope.get_name(), []).append(scope)
    binding: dict[str, list[ast.stmt]] = {}
    needed, waiting = {of}, [of]

    def read(node: ast.stmt) -> None:
        names = _read(node, by_name) - needed
        needed.update(names)
        waiting.extend(names)

    for node in statements:
        bound = _bound(node)
        for name in bound:
            binding.setdefault(name, []).append(node)
        if not bound:
            read(node)
    done: set[ast.stmt] = set()
    while waiting:
        for node in binding.pop(waiting.pop(), ()):
            if node not in done:  # it may bind many names
                done.add(node)
                read(node)
    return needed


def _bound(node: ast.stmt) -> set[str]:
    """Returns the module-level names that a statement binds."""
    names: set[str] = set()
    waiting: list[ast.AST] = [node]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, _DEFINITIONS):
            names.add(inner.name)
        elif isinstance(inner, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in inner.names} - {"*"}
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id)
        elif not isinstance(inner, _LOCAL_SCOPES):
            waiting.extend(ast.iter_child_nodes(inner))
    return names


def _read(node: ast.stmt, scopes: Mapping[str, Sequence[symtable.SymbolTable]]) -> set[str]:
    """Returns the module-level names that a statement, or a function or class in it, reads."""
    if not isinstance(node, _DEFINITIONS):
        return _loaded([node])
    inside = [_globals_of(scope) for scope in scopes.get(node.name, ())]
    around = [value for name, value in ast.iter_fields(node) if name != "body"]
    return set().union(*inside) | _loaded(around)


def _globals_of(scope: symtable.SymbolTable) -> set[str]:
    names = {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
    return names.union(*(_globals_of(inner) for inner in scope.get_children()))


def _loaded(values: Iterable[object]) -> set[str]:
    """Returns the names that nodes, and lists of nodes, read anywhere."""
    names: set[str] = set()
    for value in values:
        if isinstance(value, list):
            names |= _loaded(value)
        elif isinstance(value, ast.AST):
            loads = [leaf for leaf in ast.walk(value) if isinstance(leaf, ast.Name)]
            names |= {leaf.id for leaf in loads if isinstance(leaf.ctx, ast.Load)}
    return names


def _text_of(statements: Iterable[ast.stmt], lines: Sequence[str]) -> str:
    """Returns the lines of the statements.

    At most two of the blank lines between them remain.
    """
    blocks: list[str] = []
    last = 0
    for node in statements:
        decorators = node.decorator_list if isinstance(node, _DEFINITIONS) else []
        first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        if first <= last:  # it shares its line with the statement before
            continue
        while first - 2 >= last and lines[first - 2].startswith("#"):
            first -= 1
        blank = 0
        while first - 2 - blank >= last and not lines[first - 2 - blank].strip():
            blank += 1
        last = node.end_lineno or node.lineno
        blocks.extend([""] * (min(blank, 2) if blocks else 0))
        blocks.extend(lines[first - 1 : last])
    return "\n".join(blocks)


def _forward_arguments(tree: ast.Module) -> tuple[str, str]:
    """Returns the declared arguments of ``Model.forward``, and the same as a caller passes them."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "forward":
                    declared = method.args
                    names = [argument.arg for argument in (*declared.posonlyargs, *declared.args)]
                    plain = not (declared.vararg or declared.kwonlyargs or declared.kwarg) and names[:1] == ["self"]
                    if plain and not method.decorator_list:
                        return ast.unparse(declared), ", ".join(names[1:])
    return "self, *inputs", "*inputs"
