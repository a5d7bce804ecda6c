"""Reads a problem's declarations: literals off its text, other values by running its body."""

from __future__ import annotations

import ast
import contextlib
import copy
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from harness.errors import ProblemError, suggestion
from harness.project.paths import PYTHON_OPTIONS, import_path
from harness.records.record import FurtherDraw
from harness.system.text import one_line, words_of

if TYPE_CHECKING:
    from harness.project.problems import Problem

#: Names that describe the file. They are not constants that a case sets.
DECLARATIONS = ("CASES", "PRECISION", "DRAWS", "TIMEOUT_S", "BUILD_TIMEOUT_S")
#: Seconds that a problem's body may take, including its imports.
BODY_LIMIT_S = 120.0


def declared_values(problem: Problem, tree: ast.Module, names: tuple[str, ...]) -> dict[str, Any]:
    """Returns the values of some top-level names.

    It reads literal values from the file and runs the body for the others.
    """
    nodes = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    asked = {name: nodes[name] for name in names if name in nodes}
    literals = _used_by(tree, asked.values(), nodes)
    found: dict[str, Any] = {}
    computed: list[str] = []
    for name, node in asked.items():
        try:
            found[name] = ast.literal_eval(_Inlined(literals).visit(copy.deepcopy(node)))
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            computed.append(name)
    return found | (_computed(problem, computed) if computed else {})


def _used_by(tree: ast.Module, users: Iterable[ast.expr], nodes: dict[str, ast.expr]) -> dict[str, ast.expr]:
    """Returns the names that are assigned once and read only in these expressions.

    No other code can change their values.
    """
    everywhere = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    here = Counter(node.id for user in users for node in ast.walk(user) if isinstance(node, ast.Name))
    return {name: nodes[name] for name, count in here.items() if name in nodes and everywhere[name] == count + 1}


class _Inlined(ast.NodeTransformer):
    """Replaces names by literals, and ``**name`` by the entries of a dict."""

    def __init__(self, literals: dict[str, ast.expr]):
        self._literals = literals

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._literals.get(node.id, node))

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        self.generic_visit(node)
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None and isinstance(value, ast.Dict):
                pairs += zip(value.keys, value.values, strict=True)
            else:
                pairs.append((key, value))
        return ast.Dict([key for key, _ in pairs], [value for _, value in pairs])


def _computed(problem: Problem, names: list[str]) -> dict[str, Any]:
    """Runs the body in a separate process and returns the values of some names.

    The function ends the process together with all that it started.

    Raises:
        ProblemError: The body raised an exception, ended its process, or took longer than
            ``BODY_LIMIT_S``.
    """
    with subprocess.Popen(
        [sys.executable, *PYTHON_OPTIONS, "-m", "harness.project.problem_body"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": import_path()},
        start_new_session=True,
    ) as process:
        try:
            out, _ = process.communicate(pickle.dumps((problem, names)), timeout=BODY_LIMIT_S)
        except subprocess.TimeoutExpired:
            words = f"the problem's body still runs after {BODY_LIMIT_S:g} s; give {', '.join(names)} literal values"
            raise ProblemError(f"{one_line(str(problem.path))}: {words}") from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
    if not out:
        words = (
            f"the problem's body ended its process ({process.returncode}): a problem must not end the program "
            "that judges"
        )
        raise ProblemError(f"{one_line(str(problem.path))}: {words}")
    try:
        answer = pickle.loads(out)
    except (pickle.UnpicklingError, ImportError, AttributeError, EOFError, IndexError, TypeError, ValueError) as error:
        words = f"a declaration has a value of an unsupported type: {words_of(error)}"
        raise ProblemError(f"{one_line(str(problem.path))}: {words}") from None
    if isinstance(answer, str):
        raise ProblemError(answer)
    values: dict[str, Any] = answer
    return values


def checked_draws(problem: Problem, draws: Any) -> tuple[FurtherDraw, ...]:
    """Returns the further draws that ``DRAWS`` names, each once.

    Raises:
        ProblemError: The value is no list of known names.
    """
    form = f"{problem.path}: DRAWS must be a list of names of further draws, as in ['shifted', 'scaled']"
    if not isinstance(draws, list | tuple):
        raise ProblemError(f"{form}, not {type(draws).__name__}")
    known = [str(name) for name in FurtherDraw]
    for name in draws:
        if not isinstance(name, str):
            raise ProblemError(f"{form}; {name!r} is not a name")
        if name not in known:
            raise ProblemError(f"{form}; there is no {name!r}.{suggestion(name, known)}")
    return tuple(FurtherDraw(name) for name in dict.fromkeys(draws))


def checked_seconds(problem: Problem, name: str, declared: dict[str, Any]) -> float | None:
    """Returns a declared number of seconds, or None if the file does not declare it.

    Raises:
        ProblemError: The value is no positive finite number.
    """
    value = declared.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ProblemError(f"{problem.path}: {name} is {value!r}; it must be a number of seconds above 0")
    return float(value)
