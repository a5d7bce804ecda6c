"""Reads solutions, which are self-contained files that define ``ModelNew``.

It also finds the solutions that the command line's selectors name.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from harness.errors import HarnessError, ProblemError, SolutionError, UsageError, suggestion
from harness.project.problems import Problem, has_changed, read_problem
from harness.system.files import is_there, read_source, source_text
from harness.system.text import one_line


@dataclass(frozen=True)
class Solution:
    """A solution file, read but never imported here.

    Attributes:
        name: ``problem/variant`` for a file in the solutions folder, else the path as the user
            wrote it.
        path: Path of the file.
        source: Text of the file. Bytes that are invalid in its encoding appear as escapes.
        digest: sha256 of its bytes.
        origin: Where the text comes from, in words, if the file is temporary; else empty.
    """

    name: str
    path: Path
    source: str = field(repr=False)
    digest: str
    origin: str = ""

    @property
    def place(self) -> str:
        """The path, or the origin of a temporary file: what the user can find again."""
        return self.origin or str(self.path)


@dataclass(frozen=True)
class Candidate:
    """A solution with the problem that it claims to solve."""

    problem: Problem
    solution: Solution


def read_solution(path: Path, name: str, origin: str = "") -> Solution:
    """Reads a solution file. Only the worker that imports it finds out whether it is valid Python.

    Raises:
        SolutionError: The file cannot be read.
    """
    try:
        data = read_source(path)
    except OSError as error:
        raise SolutionError(f"cannot read solution {one_line(str(path))}: {error.strerror}") from None
    return Solution(name, Path(os.path.realpath(path)), source_text(data), hashlib.sha256(data).hexdigest(), origin)


def find_problem(root: Path, name_or_path: str) -> Problem:
    """Returns the problem of a name in ``root/problems``, or of a path to any file.

    Raises:
        UsageError: There is no problem of that name.
        ProblemError: The file is not a valid problem.
    """
    known = problem_paths(root)
    if name_or_path in known:
        return read_problem(known[name_or_path])
    path = Path(name_or_path)
    if path.suffix == ".py" and is_there(path):
        return read_problem(path)
    if path.suffix == ".py" or "/" in name_or_path:
        why = "not a problem's file (*.py)" if is_there(path) else "no such file"
        raise UsageError(f"problem {one_line(name_or_path)}: {why}")
    raise UsageError(f"no problem {name_or_path!r} in {root / 'problems'}.{suggestion(name_or_path, known)}")


class KnownProblems:
    """Problems by name or path, each read once, and again whenever its file or ``cases.toml`` has changed.

    Args:
        root: Folder that contains ``problems``.
    """

    def __init__(self, root: Path):
        self._root = root
        self._read: dict[str, Problem] = {}

    def find(self, name_or_path: str) -> Problem:
        """Returns a problem as its file is now.

        Raises:
            UsageError: There is no problem of that name.
            ProblemError: The file is not a valid problem.
        """
        problem = self._read.get(name_or_path)
        if problem is None or has_changed(problem):
            problem = self._read[name_or_path] = find_problem(self._root, name_or_path)
        return problem


def problem_paths(root: Path) -> dict[str, Path]:
    """Returns the problem files of a root by name."""
    return {path.stem: path for path in sorted((root / "problems").glob("*.py")) if path.stem != "__init__"}


def solution_paths(root: Path, problem: str) -> dict[str, Path]:
    """Returns the solution files of a problem by variant name."""
    folder = root / "solutions" / problem
    return {path.stem: path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"}


def select(
    root: Path,
    selectors: Sequence[str],
    problem: str | None,
    on_bad_file: Callable[[HarnessError], None] | None = None,
) -> list[Candidate]:
    """Returns the candidates that the command line names, each once, in order.

    Args:
        root: Folder that contains ``problems`` and ``solutions``.
        selectors: Problem names, ``problem/variant``, or paths of solution files or of folders with
            them. An empty sequence selects everything.
        problem: Name or path of the problem of path selectors; by default the problem that their
            folder is named after, else the root's only one. Without selectors, it selects the
            solutions of this problem.
        on_bad_file: Called with the error of each unusable file; the selection continues with the
            others. Without it, the first such error is raised.

    Raises:
        UsageError: A selector names nothing, or the problem of a file is unknown.
        ProblemError: A problem file is malformed: the given one, or any one without
            ``on_bad_file``.
        SolutionError: A solution file cannot be read, and there is no ``on_bad_file``.
    """
    given = find_problem(root, problem) if problem is not None else None
    if not selectors:
        names = [given.name] if given else list(problem_paths(root))
        selectors = [name for name in names if solution_paths(root, name)]
        if not selectors:
            where = root / "solutions"
            raise UsageError(f"nothing to evaluate: no solutions in {where}; render some or name a file")
    wanted = [one for selector in selectors for one in _select_one(root, selector, given)]
    read: dict[Path, Problem | None] = {}
    found: dict[Path, Candidate] = {}
    for one in wanted:
        try:
            solved = one.problem if isinstance(one.problem, Problem) else _read_once(one.problem, read)
            if solved is not None:
                solution = read_solution(one.path, one.name)
                found.setdefault(solution.path, Candidate(solved, solution))
        except (ProblemError, SolutionError) as error:
            if on_bad_file is None:
                raise
            on_bad_file(error)
    return list(found.values())


class _Wanted(NamedTuple):
    """An unread solution file that a selector names, with its problem or the problem's file."""

    path: Path
    name: str
    problem: Problem | Path


def _read_once(path: Path, read: dict[Path, Problem | None]) -> Problem | None:
    """Reads a problem once, and returns None if an earlier attempt failed."""
    if path not in read:
        read[path] = None
        read[path] = read_problem(path)
    return read[path]


def _select_one(root: Path, selector: str, given: Problem | None) -> list[_Wanted]:
    problems = problem_paths(root)
    if selector in problems:
        variants = solution_paths(root, selector)
        if not variants:
            raise UsageError(f"problem {selector!r} has no solutions in {root / 'solutions' / selector}")
        solved = given or problems[selector]
        return [_Wanted(path, f"{selector}/{variant}", solved) for variant, path in variants.items()]
    match = re.fullmatch(r"(\w+)/(\w+)", selector)
    if match and match[1] in problems and not os.path.isfile(selector):  # noqa: PTH113 - False for any odd name
        variants = solution_paths(root, match[1])
        if match[2] not in variants:
            hint = suggestion(match[2], variants)
            raise UsageError(
                f"problem {match[1]!r} has no solution {match[2]!r}.{hint} "
                f"`render {match[1]} --variant NAME` makes those that `list templates` shows."
            )
        return [_Wanted(variants[match[2]], selector, given or problems[match[1]])]
    path = Path(selector)
    if path.suffix == ".py" or os.path.isfile(selector):  # noqa: PTH113
        return [_select_file(root, path, given)]
    if os.path.isdir(selector):  # noqa: PTH112 - False for any odd name
        files = sorted(one for one in path.glob("*.py") if one.stem != "__init__")
        if not files:
            raise UsageError(f"no solution (*.py) in the folder {one_line(selector)}")
        return [_select_file(root, one, given) for one in files]
    known = [*problems, *(f"{name}/{variant}" for name in problems for variant in solution_paths(root, name))]
    raise UsageError(f"{selector!r} is not a problem, solution, file or folder.{suggestion(selector, known)}")


def _select_file(root: Path, path: Path, given: Problem | None) -> _Wanted:
    if not is_there(path):
        raise UsageError(f"no such file: {one_line(str(path))}")
    folder = Path(os.path.realpath(path)).parent
    own = folder.parent == Path(os.path.realpath(root / "solutions"))
    name = f"{folder.name}/{path.stem}" if own else str(path)
    if given is not None:
        return _Wanted(path, name, given)
    problems = problem_paths(root)
    if folder.name not in problems and len(problems) == 1:
        return _Wanted(path, name, *problems.values())
    if folder.name not in problems:
        raise UsageError(
            f"{one_line(str(path))} is not in a problem's folder; name the problem that it solves with "
            f"--problem.{suggestion(folder.name, problems)}"
        )
    return _Wanted(path, name, problems[folder.name])
