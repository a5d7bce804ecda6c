"""Which cases each candidate is judged on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.errors import HarnessError, ProblemError, UsageError
from harness.judge.process.clocks import Limits
from harness.project.cases import CUSTOM_CASE
from harness.project.problems import Problem, failure
from harness.project.solutions import Candidate
from harness.records.run_config import RunConfig

FULL_CASE = "full"
Cases = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True)
class CaseChoice:
    """What the user chose.

    Attributes:
        cases: Names of cases; none means all that fit the device.
        constants: Constants that make one case of its own; exclude ``cases``.
        is_main: Where nothing is chosen, one case alone: ``main_case`` on a GPU, the smallest on the CPU.
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
        cases: On which cases: (name, constants) each; None where their sizes decide, which a lane finds out.
        tag: By what its results are known, if by anything.
        limits: The seconds that it may run and build where they are not everybody's.
        is_main: As of ``CaseChoice``, for a lane that chooses the cases.
    """

    candidate: Candidate
    cases: Cases | None
    tag: str | None = None
    limits: Limits | None = None
    is_main: bool = False


class Planned(NamedTuple):
    """The cases of a problem that fit the CPU.

    Attributes:
        cases: These cases.
        notes: A sentence for each case that is left out.
        error: Why there are no cases.
    """

    cases: Cases
    notes: tuple[str, ...] = ()
    error: HarnessError | None = None


#: What is known of problems' sizes, by path and digest.
Plans = dict[tuple[str, str], Planned]


def plan_key(problem: Problem) -> tuple[str, str]:
    """The key of a problem in ``Plans``."""
    return str(problem.path), problem.digest


@dataclass(frozen=True)
class Planner:
    """Gives candidates their cases; it runs no code of problems.

    Attributes:
        choice: What the user chose.
        on_cpu: Whether the emulator judges, which small cases alone fit.
        config: The configuration that limits candidates; None for the policy's limits, whatever problems say.
    """

    choice: CaseChoice
    on_cpu: bool
    config: RunConfig | None = None

    def job(self, candidate: Candidate, tag: str | None = None) -> Job:
        """A candidate with its cases, and the tag of its results.

        Raises:
            UsageError: A case or constant is unknown.
        """
        problem, limits = candidate.problem, None
        if self.config is not None:
            limits = Limits(*self.config.seconds(problem.timeout_s, problem.build_timeout_s))
        return Job(candidate, self.cases(problem), tag, limits, self.choice.is_main)

    def cases(self, problem: Problem) -> Cases | None:
        """The chosen cases of a problem; None where their sizes decide.

        Raises:
            UsageError: A case or constant is unknown.
        """
        choice, cases = self.choice, problem.cases
        if choice.constants:
            problem.check_constants(choice.constants, "--set")
            return ((CUSTOM_CASE, choice.constants),)
        if choice.cases:
            return tuple((name, problem.case(name)) for name in dict.fromkeys(choice.cases))
        if self.on_cpu:
            return None
        return ((main_case(problem), cases[main_case(problem)]),) if choice.is_main else tuple(cases.items())


def fitting(problem: Problem, is_main: bool) -> Planned:
    """The cases of a problem that fit the CPU; runs the problem's code.

    Args:
        problem: The problem.
        is_main: Whether only the smallest is wanted.
    """
    from harness.judge.inputs.memory_fit import size_of, why_not
    from harness.system.memory import available_memory

    kept: list[tuple[float, str]] = []
    notes = []
    try:
        for name, constants in problem.cases.items():
            size = size_of(problem, constants)
            reason = why_not(size, available_memory())
            if reason is None:
                kept.append((float("inf") if size is None else size.elements, name))
            else:
                words = f"{problem.name}: case {name!r} is left out on the CPU: {reason}; force it with --case {name}"
                notes.append(words)
    except ProblemError as error:
        return Planned((), error=error)
    except (Exception, SystemExit, GeneratorExit) as error:  # raised by the problem's own functions
        return Planned((), error=failure(problem, "sizing its cases", error))
    if not kept:
        words = f"no case of {problem.name} fits the CPU; choose one with --case or --set"
        return Planned((), tuple(notes), UsageError(words))
    names = [min(kept, key=lambda one: one[0])[1]] if is_main else [name for _, name in kept]
    return Planned(tuple((name, problem.cases[name]) for name in names), () if is_main else tuple(notes))
