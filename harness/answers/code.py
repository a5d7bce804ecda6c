"""Recognises solution code by its syntax tree, without running it."""

from __future__ import annotations

import ast
import builtins
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from harness.system.text import MAX_CODE_CHARACTERS, has_costly_fields

MODEL = "ModelNew"
_MENTION = re.compile(rf"^[ \t]*(?:class[ \t]+{MODEL}\b|{MODEL}[ \t]*(?::[^=\n]*)?=)", re.MULTILINE)
#: The reference's class, which some answers define again.
_REFERENCE = re.compile(r"^class[ \t]+Model\b", re.MULTILINE)


@dataclass(frozen=True)
class Parsed:
    """Result of parsing a text as Python.

    Attributes:
        parses: Whether the text is valid Python.
        defines_model: Whether it binds ``ModelNew`` at module level by a class or an assignment. An
            import does not count, because usage examples import the class.
        stands_alone: Whether it also binds the names in the bases or the value of ``ModelNew``. An
            excerpt without its imports does not.
        line: Line of the syntax error, from 1; 0 if there is none.
        fault: Description of the error; empty if there is none.
        string_is_open: Whether the error is an unterminated triple-quoted string.
    """

    parses: bool
    defines_model: bool = False
    stands_alone: bool = False
    line: int = 0
    fault: str = ""
    string_is_open: bool = False


def parse(text: str) -> Parsed:
    """Parses a text as Python."""
    if len(text) > MAX_CODE_CHARACTERS:
        return Parsed(False, line=1, fault=f"it has more than {MAX_CODE_CHARACTERS:,} characters")
    if has_costly_fields(text):
        return Parsed(
            False, line=1, fault=f"it has f-strings and {text.count('{'):,} braces; put it into smaller parts"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as warnings about "\d" in a string, which only concern the author
            tree = ast.parse(text)
        values = _model_values(tree)
        alone = bool(values) and _root_names(values[-1]) <= _bound_names(tree)
    except SyntaxError as error:
        last = text.count("\n") + 1
        line = min(max(error.lineno or 1, 1), last)
        return Parsed(False, line=line, fault=error.msg, string_is_open="unterminated triple-quoted" in error.msg)
    except ValueError as error:
        return Parsed(False, line=1, fault=str(error))
    except (RecursionError, MemoryError):
        return Parsed(False, line=1, fault="an expression in it is nested too deeply")
    return Parsed(True, defines_model=bool(values), stands_alone=alone)


def mentions_model(text: str) -> bool:
    """Returns whether a line of a text, Python or not, begins to define ``ModelNew``."""
    return _MENTION.search(text) is not None


def defines_reference(text: str) -> bool:
    """Returns whether a line of a text, Python or not, begins the class ``Model``."""
    return _REFERENCE.search(text) is not None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements at module level, also inside ``if``, ``try``, ``with`` and loops."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.For | ast.While | ast.Try | ast.TryStar | ast.With):
            yield from _statements(node.body)
            if not isinstance(node, ast.With):
                yield from _statements(node.orelse)
            if isinstance(node, ast.Try | ast.TryStar):
                for handler in node.handlers:
                    yield from _statements(handler.body)
                yield from _statements(node.finalbody)


def _model_values(tree: ast.Module) -> list[list[ast.expr]]:
    """Returns the class bases or the assigned value of each definition of ``ModelNew``."""
    found: list[list[ast.expr]] = []
    for node in _statements(tree.body):
        if isinstance(node, ast.ClassDef) and node.name == MODEL:
            found.append(node.bases)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == MODEL for target in targets):
                found.append([node.value])
    return found


def _root_names(values: list[ast.expr]) -> set[str]:
    return {node.id for value in values for node in ast.walk(value) if isinstance(node, ast.Name)} - {MODEL}


def _bound_names(tree: ast.Module) -> set[str]:
    """Returns the names that a module binds anywhere, and the built-in names.

    If the module imports ``*``, the result contains every name that it uses.
    """
    bound = set(vars(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    if "*" in bound:
        bound.update(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return bound
