"""Reads the constants that a case sets, from ``CASES`` of a problem, ``cases.toml`` beside it and ``--set``."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import ProblemError, UsageError, suggestion
from harness.project.extents import as_written
from harness.system.files import read_source
from harness.system.text import one_line

if TYPE_CHECKING:
    from harness.project.problems import Problem

#: Name of the case that ``--set`` makes.
CUSTOM_CASE = "custom"
#: The cases of a file that declares none.
UNDECLARED: dict[str, dict[str, Any]] = {"full": {}}
#: Name of the case that is judged if a problem declares none and its own sizes do not fit the device.
SMALL_CASE = "small"
#: The file in a problem's folder that declares cases of the problems there.
CASES_FILE = "cases.toml"
#: Maximum nesting of a setting. A deeper value probably contains itself.
_MAX_SETTING_DEPTH = 32


def parse_setting(text: str) -> tuple[str, Any]:
    """Parses one setting: ``("batch_size", 4)`` for ``batch_size=4``.

    Raises:
        UsageError: The text has no ``=``, or its value is not a Python literal.
    """
    name, separator, value = text.partition("=")
    name = name.strip()
    if not separator or not re.fullmatch(r"[A-Za-z_]\w*(\[\d+\])?", name):
        raise UsageError(f"--set {text!r}: write NAME=VALUE, as in --set batch_size=4")
    try:
        return name, ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise UsageError(
            f"--set {text!r}: {value!r} is not a Python literal; write 4, 0.5, (2, 3), True or '\"text\"'"
        ) from None


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Parses the settings of ``--set``, each as in ``parse_setting``.

    Raises:
        UsageError: A text is not ``NAME=VALUE``, or a name is set twice.
    """
    constants: dict[str, Any] = {}
    for text in texts:
        name, value = parse_setting(text)
        if name in constants:
            raise UsageError(f"--set sets {name!r} twice: {constants[name]!r} and {value!r}")
        constants[name] = value
    return constants


def cases_beside(path: Path) -> Any:
    """Returns what ``cases.toml`` in a problem's folder declares for the problem; None if it declares nothing.

    The file has a table for each problem, by the stem of the problem's file, with a table for each
    case.

    Raises:
        ProblemError: The file cannot be read, or is not TOML.
    """
    file = path.parent / CASES_FILE
    try:
        declared = tomllib.loads(read_source(file).decode())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ProblemError(f"cannot read {one_line(str(file))}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"{one_line(str(file))}: not TOML: {one_line(str(error))}") from None
    return declared.get(path.stem)


def checked_cases(problem: Problem, cases: Any, beside: Any = None) -> dict[str, dict[str, Any]]:
    """Returns the settings by case name, if the declaration has the right form.

    Args:
        problem: The problem.
        cases: The value of ``CASES``.
        beside: The declaration in ``cases.toml``, which replaces ``CASES``; None if there is none.

    Raises:
        ProblemError: The declaration, a name or a setting has a wrong form, or a constant is
            unknown.
    """
    path, form = problem.path, "CASES must map case names to settings, as in {'full': {}, 'cpu': {'n': 4}}"
    if beside is not None:
        cases, path = beside, problem.path.parent / CASES_FILE
        form = f'write settings below a name, as in ["{problem.name}".cpu] and n = 4'
    form = f"{path}: {form}"
    if not isinstance(cases, dict) or not cases:
        raise ProblemError(form)
    for name, settings in cases.items():
        if not isinstance(name, str) or not re.fullmatch(r"\w+", name) or name == CUSTOM_CASE:
            raise ProblemError(f"{form}; {name!r} is not a valid name (letters, digits, _; not {CUSTOM_CASE!r})")
        if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
            raise ProblemError(f"{form}; the settings of {name!r} are {settings!r}")
        for key in settings:
            if key not in problem.constants:
                hint = suggestion(key, problem.named)
                raise ProblemError(
                    f"{path}: case {name!r} sets {key!r}, which {problem.path.name} never assigns.{hint}"
                )
            if not _is_setting(settings[key]):
                raise ProblemError(
                    f"{path}: case {name!r} sets {key!r} to a value of an unsupported type; use "
                    "numbers, strings, dtypes, and lists, tuples, sets and dicts of these"
                )
    if beside is not None:
        return {name: as_written(problem.source, settings) for name, settings in cases.items()}
    return dict(cases)


def _is_setting(value: Any, depth: int = 0) -> bool:
    """Returns whether a case may give a constant this value.

    Other processes and records must be able to store the value.
    """
    if depth > _MAX_SETTING_DEPTH:
        return False
    if type(value) in (list, tuple, set, frozenset):
        return all(_is_setting(item, depth + 1) for item in value)
    if type(value) is dict:
        return all(_is_setting(item, depth + 1) for pair in value.items() for item in pair)
    kind = type(value)
    return (
        kind in (type(None), bool, int, float, complex, str, bytes)
        or f"{kind.__module__}.{kind.__name__}" == "torch.dtype"
    )
