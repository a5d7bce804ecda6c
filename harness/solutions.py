"""Solutions: self-contained files that define ``ModelNew``; and how the command line's selectors find them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.errors import SolutionError, UsageError, suggestion
from harness.problems import Problem, read_problem


@dataclass(frozen=True)
class Solution:
    """A solution file, read but never imported here.

    Attributes:
        name: ``problem/variant`` for a file in the solutions folder, else the path as the user wrote it.
        path: Where it lies.
        source: Its text.
        digest: sha256 of its bytes.
    """

    name: str
    path: Path
    source: str = field(repr=False)
    digest: str


@dataclass(frozen=True)
class Candidate:
    """A solution with the problem it claims to solve."""

    problem: Problem
    solution: Solution


def read_solution(path: Path, name: str) -> Solution:
    """Read a solution file.

    Raises:
        SolutionError: It cannot be read.
    """
    try:
        data = path.read_bytes()
        source = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SolutionError(f"cannot read solution {path}: {error}") from None
    return Solution(name, path.resolve(), source, hashlib.sha256(data).hexdigest())


def find_problem(root: Path, name_or_path: str) -> Problem:
    """The problem of a name in ``root/problems``, or of a path to any file.

    Raises:
        UsageError: There is none of that name.
        ProblemError: The file is no problem.
    """
    known = problem_paths(root)
    if name_or_path in known:
        return read_problem(known[name_or_path])
    path = Path(name_or_path)
    if path.suffix == ".py" and path.is_file():
        return read_problem(path)
    raise UsageError(f"no problem {name_or_path!r} in {root / 'problems'}.{suggestion(name_or_path, known)}")


def problem_paths(root: Path) -> dict[str, Path]:
    """The problem files of a root by name."""
    return {path.stem: path for path in sorted((root / "problems").glob("*.py")) if path.stem != "__init__"}


def solution_paths(root: Path, problem: str) -> dict[str, Path]:
    """The solution files of a problem by variant name."""
    folder = root / "solutions" / problem
    return {path.stem: path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"}


def select(root: Path, selectors: Sequence[str], problem: str | None) -> list[Candidate]:
    """The candidates that the command line names, each once, in the order named.

    Args:
        root: Folder that holds ``problems`` and ``solutions``.
        selectors: Problem names, ``problem/variant``, or paths of solution files; none means everything.
        problem: Name or path of the problem that path selectors belong to (and, without selectors, the one whose
            solutions are meant).

    Raises:
        UsageError: A selector names nothing, or a file's problem cannot be told.
        ProblemError: A problem file is malformed.
        SolutionError: A solution file cannot be read.
    """
    given = find_problem(root, problem) if problem is not None else None
    if not selectors:
        names = [given.name] if given else list(problem_paths(root))
        selectors = [name for name in names if solution_paths(root, name)]
        if not selectors:
            where = root / "solutions"
            raise UsageError(f"nothing to evaluate: no solutions in {where}; render some or name a file")
    found: dict[Path, Candidate] = {}
    for selector in selectors:
        for candidate in _select_one(root, selector, given):
            found.setdefault(candidate.solution.path, candidate)
    return list(found.values())


def _select_one(root: Path, selector: str, given: Problem | None) -> list[Candidate]:
    problems = problem_paths(root)
    if selector in problems:
        problem = given or read_problem(problems[selector])
        variants = solution_paths(root, selector)
        if not variants:
            raise UsageError(f"problem {selector!r} has no solutions in {root / 'solutions' / selector}")
        return [Candidate(problem, read_solution(path, f"{selector}/{variant}")) for variant, path in variants.items()]
    match = re.fullmatch(r"(\w+)/(\w+)", selector)
    if match and match[1] in problems and not Path(selector).is_file():
        variants = solution_paths(root, match[1])
        if match[2] not in variants:
            hint = suggestion(match[2], variants)
            raise UsageError(f"problem {match[1]!r} has no solution {match[2]!r}.{hint}")
        problem = given or read_problem(problems[match[1]])
        return [Candidate(problem, read_solution(variants[match[2]], selector))]
    path = Path(selector)
    if path.suffix == ".py" or path.is_file():
        return [_select_file(root, path, given)]
    known = [*problems, *(f"{name}/{variant}" for name in problems for variant in solution_paths(root, name))]
    raise UsageError(f"{selector!r} names no problem, solution or file.{suggestion(selector, known)}")


def _select_file(root: Path, path: Path, given: Problem | None) -> Candidate:
    if not path.is_file():
        raise UsageError(f"no file {path}")
    folder = path.resolve().parent
    own = folder.parent == (root / "solutions").resolve()
    solution = read_solution(path, f"{folder.name}/{path.stem}" if own else str(path))
    if given is not None:
        return Candidate(given, solution)
    problems = problem_paths(root)
    if folder.name not in problems:
        raise UsageError(
            f"{path} lies in no problem's folder; say which problem it solves with --problem."
            f"{suggestion(folder.name, problems)}"
        )
    return Candidate(read_problem(problems[folder.name]), solution)
