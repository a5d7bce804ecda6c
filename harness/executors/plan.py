"""Which cases each candidate is judged on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ProblemError
from harness.judge.handle import Limits
from harness.problems import CUSTOM_CASE, Problem, failure
from harness.solutions import Candidate
from harness.text import printable

FULL_CASE = "full"
Cases = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True)
class Choice:
    """What the user chose.

    Attributes:
        cases: Names of cases; none means all that fit the device.
        constants: Constants that make one case of its own; exclude ``cases``.
        is_main: Where nothing is chosen, the main case alone (see ``main_case``) and not all that fit.
    """

    cases: tuple[str, ...]
    constants: dict[str, Any]
    is_main: bool = False


def main_case(problem: Problem) -> str:
    """The case that stands for a problem on a GPU: ``full``, else its first."""
    return FULL_CASE if FULL_CASE in problem.cases else next(iter(problem.cases))


@dataclass(frozen=True)
class Job:
    """A candidate that is to be judged.

    Attributes:
        candidate: The solution and its problem.
        cases: On which cases: (name, constants) each.
        tag: By what its results are known, if by anything.
        limits: The seconds that it may run and build where they are not everybody's.
    """

    candidate: Candidate
    cases: Cases
    tag: str | None = None
    limits: Limits | None = None


@dataclass(frozen=True)
class Time:
    """The seconds that candidates may run and build, where their problems leave it open.

    Attributes:
        limits: The seconds.
        fixed: Names of those limits that count whatever a problem says: the user has set them.
    """

    limits: Limits
    fixed: frozenset[str] = frozenset()

    def of(self, problem: Problem) -> Limits:
        """The seconds for a problem's candidates."""
        own = {"run_s": problem.timeout_s, "build_s": problem.build_timeout_s}
        kept = {name: value for name, value in own.items() if value is not None and name not in self.fixed}
        return self.limits._replace(**kept)


class Planner:
    """Gives candidates their cases, which are found once for each problem.

    Args:
        choice: What the user chose.
        on_cpu: Whether only what fits the emulator is meant.
        time: The seconds that candidates may use; None for what the policy grants, whatever problems say.

    Attributes:
        has_bad_problem: Whether a problem turned out bad on the way, or without a case; that was told on stderr.
    """

    def __init__(self, choice: Choice, on_cpu: bool, time: Time | None = None):
        self._time = time
        self.has_bad_problem = False
        self._choice = choice
        self._on_cpu = on_cpu
        self._chosen: dict[Path, Cases] = {}

    def job(self, candidate: Candidate, tag: str | None = None) -> Job | None:
        """A candidate with its cases, and by what its results are known; None where its problem has none.

        Raises:
            UsageError: A case or constant is unknown.
        """
        problem = candidate.problem
        if problem.path not in self._chosen:
            self._chosen[problem.path] = self._cases_of(problem)
        cases = self._chosen[problem.path]
        limits = self._time.of(problem) if self._time is not None else None
        return Job(candidate, cases, tag, limits) if cases else None

    def _cases_of(self, problem: Problem) -> Cases:
        try:
            cases = _cases(problem, self._choice, self._on_cpu)
            fault = "" if cases else f"no case of {problem.path} is left to judge; choose one with --case or --set"
        except ProblemError as error:
            cases, fault = (), str(error)
        except (SystemExit, GeneratorExit) as error:  # raised by the problem's own functions
            cases, fault = (), str(failure(problem, "sizing its cases", error))
        if fault:
            self.has_bad_problem = True
            print(f"error: {printable(fault)}", file=sys.stderr)
        return cases


def plan(candidates: Sequence[Candidate], choice: Choice, on_cpu: bool) -> tuple[list[Job], bool]:
    """The candidates with their cases; and whether a problem turned out bad on the way (told on stderr).

    Raises:
        UsageError: A case or constant is unknown.
    """
    planner = Planner(choice, on_cpu)
    jobs = [job for candidate in candidates if (job := planner.job(candidate)) is not None]
    return jobs, planner.has_bad_problem


def _cases(problem: Problem, choice: Choice, on_cpu: bool) -> Cases:
    if choice.constants:
        problem.check_constants(choice.constants, "--set")
        return ((CUSTOM_CASE, choice.constants),)
    if choice.cases:
        return tuple((name, problem.case(name)) for name in dict.fromkeys(choice.cases))
    if choice.is_main:
        return ((main_case(problem), problem.cases[main_case(problem)]),)
    return _fitting(problem) if on_cpu else tuple(problem.cases.items())


def _fitting(problem: Problem) -> Cases:
    """Every case of a problem that fits the CPU; what is left out is said on stderr."""
    from harness.judge.fitting import size_of, why_not
    from harness.memory import available_memory

    kept = []
    for name, constants in problem.cases.items():
        reason = why_not(size_of(problem, constants), available_memory())
        if reason is None:
            kept.append((name, constants))
        else:
            print(
                f"{problem.name}: case {name!r} is left out on the CPU: {reason}; force it with --case {name}",
                file=sys.stderr,
            )
    return tuple(kept)
