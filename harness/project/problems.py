"""Reads problems: plain PyTorch files with ``Model``, ``get_inputs`` and ``get_init_inputs``.

A file written for KernelBench works without changes. A *case* replaces module-level constants while
the body of the file runs, so every value derived from them follows. The harness never changes the
file.

Importing this module does not import torch; running a problem's body does.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness import package
from harness.errors import HarnessError, ProblemError, UsageError, suggestion
from harness.project import local_modules
from harness.project.cases import UNDECLARED, cases_beside, checked_cases
from harness.project.extents import FUNCTIONS, literal_name, literals_of
from harness.project.problem_declarations import DECLARATIONS, checked_draws, checked_seconds, declared_values
from harness.records.record import FurtherDraw, PrecisionClass
from harness.system.files import read_source
from harness.system.interrupts import Interrupted
from harness.system.streams import printing_to_stderr
from harness.system.text import is_costly_to_parse, one_line, words_of

SAME_GENERATOR = "same-generator"
_REQUIRED = ("Model", "get_inputs", "get_init_inputs")
#: What torch says where a problem asks for a GPU that is not there.
_NO_GPU = ("Torch not compiled with CUDA enabled", "No CUDA GPUs are available", "Found no NVIDIA driver")
_OVERRIDES = "__case_constants__"
#: Exceptions of the parser. It raises the last two for text that is nested too deeply.
UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Problem:
    """A problem file, read but not run.

    Attributes:
        name: Stem of the file.
        path: Path of the file.
        source: Text of the file.
        digest: sha256 of the text, and of the user's own modules that it imports.
        constants: Names assigned at module level, outside functions and classes.
        cases: Settings of those constants by case name. A file without a declaration has ``full``
            with no settings.
        precision: Precision class that the file allows.
        draws: Further draws that its inputs allow, each once.
        timeout_s: Seconds that a candidate may run on a case, if the file sets them.
        build_timeout_s: Seconds that a candidate's builds may take, if the file sets them.
        beside: The problem's declaration in ``cases.toml`` of its folder, or None.
    """

    name: str
    path: Path
    source: str = field(repr=False)
    digest: str
    constants: frozenset[str]
    cases: dict[str, dict[str, Any]]
    precision: PrecisionClass
    draws: tuple[FurtherDraw, ...] = ()
    timeout_s: float | None = None
    build_timeout_s: float | None = None
    beside: Any = field(default=None, repr=False)

    def case(self, name: str) -> dict[str, Any]:
        """Returns the settings of a case.

        Raises:
            UsageError: There is no such case.
        """
        if name not in self.cases:
            raise UsageError(f"problem {self.name!r} has no case {name!r}.{suggestion(name, self.cases)}")
        return self.cases[name]

    @property
    def named(self) -> set[str]:
        """The constants that have a name in the file, unlike literals of functions."""
        return {name for name in self.constants.difference(DECLARATIONS) if name.isidentifier()}

    def check_constants(self, constants: dict[str, Any], where: str) -> None:
        """Rejects settings of constants that the file does not have.

        Raises:
            UsageError: A name is unknown. The message begins with ``where``, the source of the
                setting.
        """
        for name in constants:
            if name not in self.constants:
                hint = suggestion(name, self.named)
                raise UsageError(f"{where}: {self.path.name} has no constant {name!r}.{hint}")


@dataclass(frozen=True)
class ProblemModule:
    """A problem whose body has run under a case.

    Attributes:
        model: Constructor of the reference: its class, or the class with ``eval()`` if the file has
            ``TRAINING = False``.
        get_inputs: Function that draws the inputs.
        get_init_inputs: Function that returns the constructor's arguments.
        same_generator: Whether the candidate must draw the reference's random numbers, by
            ``RANDOMNESS``.
    """

    model: Callable[..., Any]
    get_inputs: Callable[[], Any]
    get_init_inputs: Callable[[], Any]
    same_generator: bool = False


def read_problem(path: Path) -> Problem:
    """Reads and checks a problem file, and runs its body only if ``CASES`` is not a literal.

    Raises:
        ProblemError: The file cannot be read or parsed, or lacks a required name.
    """
    source = problem_text(path)
    tree, assigned = _parsed(path, source)
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)} | assigned
    for name in _REQUIRED:
        if name not in defined and not _imports(tree, name):
            hint = f"; if Model() needs no arguments, add `def {name}(): return []`" if name == _REQUIRED[2] else ""
            needs = ", ".join(_REQUIRED)
            raise ProblemError(f"problem {one_line(str(path))} defines no {name}; it needs {needs}{hint}")
    problem = Problem(
        name=path.stem,
        path=path,
        source=source,
        digest=local_modules.digest(tree, source),
        constants=frozenset(assigned),
        cases=UNDECLARED,
        precision=PrecisionClass.FP32,
    )
    declared = declared_values(problem, tree, DECLARATIONS)
    beside = cases_beside(path)
    cases = checked_cases(problem, declared.get("CASES", problem.cases), beside)
    precision = declared.get("PRECISION", PrecisionClass.FP32.value)
    try:
        allowed = PrecisionClass(precision)
    except ValueError:
        known = ", ".join(PrecisionClass)
        raise ProblemError(f"{path}: PRECISION is {precision!r}; it must be one of {known}") from None
    draws = checked_draws(problem, declared.get("DRAWS", []))
    timeout_s, build_timeout_s = (checked_seconds(problem, name, declared) for name in ("TIMEOUT_S", "BUILD_TIMEOUT_S"))
    return replace(
        problem,
        cases=cases,
        precision=allowed,
        draws=draws,
        timeout_s=timeout_s,
        build_timeout_s=build_timeout_s,
        beside=beside,
    )


def problem_text(path: Path) -> str:
    """Returns the text of a problem file, with plain line breaks.

    Raises:
        ProblemError: The file cannot be read.
    """
    try:
        source = read_source(path).decode("utf-8-sig")
    except OSError as error:
        raise ProblemError(f"cannot read problem {one_line(str(path))}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ProblemError(f"cannot read problem {one_line(str(path))}: it is not UTF-8 text ({error})") from None
    return source.replace("\r\n", "\n").replace("\r", "\n")


def has_changed(problem: Problem) -> bool:
    """Returns whether a problem's text, a module that it imports, or its declaration in ``cases.toml`` is another now.

    Raises:
        ProblemError: A file cannot be read.
    """
    if problem_text(problem.path) != problem.source or cases_beside(problem.path) != problem.beside:
        return True
    return local_modules.digest(ast.parse(problem.source), problem.source) != problem.digest


def run_body(problem: Problem, constants: dict[str, Any]) -> types.ModuleType:
    """Runs a problem's body with some of its constants replaced at their assignment.

    The output of the body goes to stderr, because stdout is for results.

    Args:
        problem: The problem.
        constants: New values by name; each name must be one of ``problem.constants``.

    Returns:
        A fresh module, registered only in ``sys.modules`` under a name of its own.

    Raises:
        ProblemError: The body raised an exception; the message gives the line.
    """
    tree = ast.parse(problem.source, str(problem.path))
    local_modules.forget(tree)
    tree = ast.fix_missing_locations(_ReplaceConstants(constants).visit(tree))
    module = types.ModuleType(_module_name(problem, constants))
    module.__file__ = str(problem.path)
    module.__dict__[_OVERRIDES] = constants
    sys.modules[module.__name__] = module  # dataclasses and pickling look classes up by module name
    try:
        with printing_to_stderr():
            exec(compile(tree, str(problem.path), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        raise failure(problem, "the problem's body", error) from error
    return module


def forget(problem: Problem, constants: dict[str, Any]) -> None:
    """Releases the module that ``run_body`` registered, with all that it holds."""
    sys.modules.pop(_module_name(problem, constants), None)


def _module_name(problem: Problem, constants: dict[str, Any]) -> str:
    token = hashlib.sha256(repr(sorted(constants.items())).encode()).hexdigest()[:12]
    return f"harness_problem_{problem.name}_{token}"


def load(problem: Problem, constants: dict[str, Any]) -> ProblemModule:
    """Runs a problem's body under a case and returns the functions that the harness calls.

    Raises:
        ProblemError: The body raised an exception, a required name is not callable, or ``TRAINING``
            or ``RANDOMNESS`` has an unknown value.
    """
    import torch

    module = run_body(problem, constants)
    for name in _REQUIRED:
        if not callable(getattr(module, name, None)):
            raise ProblemError(f"{problem.path}: {name} is not callable")
    if isinstance(module.Model, type) and not issubclass(module.Model, torch.nn.Module):
        raise ProblemError(f"{problem.path}: Model is not a torch.nn.Module: write class Model(torch.nn.Module)")
    training = getattr(module, "TRAINING", True)
    if not isinstance(training, bool):
        raise ProblemError(f"{problem.path}: TRAINING is {training!r}; it must be True or False")
    model = module.Model if training else _evaluating(module.Model)
    randomness = getattr(module, "RANDOMNESS", None)
    if randomness not in (None, SAME_GENERATOR):
        raise ProblemError(f"{problem.path}: RANDOMNESS is {randomness!r}; the only valid value is {SAME_GENERATOR!r}")
    return ProblemModule(model, module.get_inputs, module.get_init_inputs, randomness == SAME_GENERATOR)


def failure(problem: Problem, what: str, error: BaseException) -> ProblemError:
    """Returns the error for an exception in a problem's function, with the call and the line."""
    return ProblemError(f"{_place(problem, error)}: {what} failed: {_words(error)}")


def fault_of(problem: Problem, error: BaseException) -> ProblemError | None:
    """Converts an unforeseen exception to an error of the problem whose code was running.

    A problem's functions may raise any exception, even ``KeyboardInterrupt``. So may torch on their
    behalf, in a backward for instance.

    Args:
        problem: The problem.
        error: The exception.

    Returns:
        The problem's error, or None if the exception came from the harness's own code, which is a
        defect.
    """
    own = package.FOLDER
    frames = traceback.extract_tb(error.__traceback__)
    inside = bool(frames) and Path(frames[-1].filename).is_relative_to(own)
    # Torch raises RuntimeErrors from C++, which has no frames. The innermost frame is then that of
    # the caller.
    if isinstance(error, HarnessError) or (inside and not isinstance(error, RuntimeError)):
        return None
    return failure(problem, "judging with this problem", error)


@contextlib.contextmanager
def faults_told(problem: Problem) -> Iterator[None]:
    """Turns an exception of a problem's own code into ``ProblemError`` (see ``fault_of``), which names its file."""
    try:
        yield
    except Interrupted:
        raise
    except ProblemError as error:
        if str(problem.path) in str(error):
            raise
        raise ProblemError(f"{problem.path}: {error}") from error
    except BaseException as error:
        fault = fault_of(problem, error)
        if fault is None:
            raise
        raise fault from None


def function_source(source: str, function: str) -> str | None:
    """Returns a normal form of a top-level function, without comments and layout.

    The result is None if the text has no such function, or would take long to parse.
    """
    return _functions(source).get(function)


@functools.lru_cache(maxsize=8)
def _functions(source: str) -> dict[str, str | None]:
    """Returns the normal forms of a text's top-level functions, by name.

    The cache avoids parsing a hostile text more than once, which takes long.
    """
    if is_costly_to_parse(source):
        return {}
    try:
        tree = ast.parse(source)
    except UNPARSABLE:
        return {}
    lines = source.split("\n")
    found: dict[str, str | None] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name not in found:
            try:
                found[node.name] = ast.dump(node)
            except RecursionError:  # the expression is too deep to walk, so the text itself serves
                found[node.name] = "\n".join(lines[node.lineno - 1 : node.end_lineno])
    return found


def _parsed(path: Path, source: str) -> tuple[ast.Module, set[str]]:
    """Parses a problem, and returns its syntax tree and the names assigned at module level."""
    shown = one_line(str(path))
    try:
        tree = ast.fix_missing_locations(ast.parse(source, str(path)))
        compile(tree, str(path), "exec", dont_inherit=True)  # from Python 3.12 on, text that is too deep may parse
        return tree, _assigned_names(tree)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise ProblemError(f"{shown}:{line or 1}: not Python: {getattr(error, 'msg', error)}") from None
    except (RecursionError, MemoryError):
        raise ProblemError(f"{shown}: not Python: an expression in it is nested too deeply") from None


def _assigned_names(tree: ast.Module) -> set[str]:
    finder = _ReplaceConstants({})
    finder.visit(tree)
    return finder.seen


def _imports(tree: ast.Module, name: str) -> bool:
    return any(
        isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names)
        for node in tree.body
    )


class _ReplaceConstants(ast.NodeTransformer):
    """Replaces the values of module-level assignments, also in ``if``, ``for`` and the like.

    It replaces integer literals of the functions in ``FUNCTIONS``, too.
    """

    def __init__(self, constants: dict[str, Any]):
        self._constants = constants
        self.seen: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name in FUNCTIONS:
            for index, literal in enumerate(literals_of(node)):
                name = literal_name(node.name, index)
                self.seen.add(name)
                literal.value = self._constants.get(name, literal.value)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.AST]:
        names = [leaf.id for target in node.targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)
                 and isinstance(leaf.ctx, ast.Store)]  # fmt: skip
        self.seen.update(names)
        replaced = [name for name in names if name in self._constants]
        if len(names) == 1 and replaced and isinstance(node.targets[0], ast.Name):
            node.value = self._lookup(replaced[0])
            return node
        return [node, *(self._assignment(name) for name in replaced)]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if isinstance(node.target, ast.Name):
            self.seen.add(node.target.id)
            if node.target.id in self._constants:
                node.value = self._lookup(node.target.id)
        return node

    def _assignment(self, name: str) -> ast.AST:
        return ast.Assign(targets=[ast.Name(name, ast.Store())], value=self._lookup(name))

    @staticmethod
    def _lookup(name: str) -> ast.expr:
        return ast.Subscript(ast.Name(_OVERRIDES, ast.Load()), ast.Constant(name), ast.Load())


def _evaluating(model: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a model's class so that its instances are in evaluation mode."""
    return lambda *arguments: model(*arguments).eval()


def _place(problem: Problem, error: BaseException) -> str:
    """Returns ``path:line`` of an error's innermost frame in the problem's file."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(problem.path):
            line = trace.tb_lineno
        trace = trace.tb_next
    shown = one_line(str(problem.path))
    return f"{shown}:{line}" if line else shown


def _words(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "it called sys.exit: a problem must not end the program that judges"
    told = words_of(error)
    if any(words in told for words in _NO_GPU):
        told += "; draw on the CPU or on torch's default device: the harness brings inputs to the candidate's"
    return told
