"""Plans: the cases that each candidate is judged on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.errors import HarnessError, ProblemError, UsageError
from harness.judge.process.time_limits import Limits
from harness.project.cases import CUSTOM_CASE, SMALL_CASE, UNDECLARED
from harness.project.problems import Problem, failure
from harness.project.solutions import Candidate
from harness.records.kernels import KernelLimits
from harness.records.run_config import RunConfig
from harness.system.interrupts import Interrupted

FULL_CASE = "full"
Cases = tuple[tuple[str, dict[str, Any]], ...]


@dataclass(frozen=True)
class CaseChoice:
    """The user's choice of cases.

    Attributes:
        cases: Names of cases; empty for all that fit the device.
        constants: Constants that make a custom case; excludes ``cases``.
        is_main: Whether an empty choice means a single case: ``main_case`` on a GPU, the smallest
            on the CPU.
    """

    cases: tuple[str, ...]
    constants: dict[str, Any]
    is_main: bool = False


def main_case(problem: Problem) -> str:
    """Returns the name of a problem's default case on a GPU: ``full``, else the first."""
    return FULL_CASE if FULL_CASE in problem.cases else next(iter(problem.cases))


@dataclass(frozen=True)
class Job:
    """A candidate to judge.

    Attributes:
        candidate: The solution and its problem.
        cases: The cases as (name, constants); None if a lane must first find out which ones fit.
        tag: The caller's name for the results, or None.
        limits: The candidate's own timeouts; None for the policy's.
        is_main: ``CaseChoice.is_main``, for the lane that chooses the cases.
        trials: Trials of each case; None for the policy's number.
        fresh: Whether to ignore the store's answers.
        to_beat: Speedups over eager by case, as in ``Policy``; None for a whole timing.
        limits_of_kernels: What nvcc may give each kernel. If a build ahead shows more, the candidate does
            not run. Of those that are built, candidates without spills come first. None for no limits.
    """

    candidate: Candidate
    cases: Cases | None
    tag: str | None = None
    limits: Limits | None = None
    is_main: bool = False
    trials: int | None = None
    fresh: bool = False
    to_beat: Mapping[str, float] | None = None
    limits_of_kernels: KernelLimits | None = None

    @property
    def first_constants(self) -> dict[str, Any]:
        """Returns the constants of the first case; none while the cases are unknown."""
        return self.cases[0][1] if self.cases else {}


class Planned(NamedTuple):
    """The cases of a problem that fit the device.

    Attributes:
        cases: The cases as (name, constants).
        notes: A sentence for each case that does not fit.
        error: The reason if there are no cases.
    """

    cases: Cases
    notes: tuple[str, ...] = ()
    error: HarnessError | None = None


#: The cases that fit the device, by the problem's path and digest.
Plans = dict[tuple[str, str], Planned]


def plan_key(problem: Problem) -> tuple[str, str]:
    """Returns a problem's key in ``Plans``."""
    return str(problem.path), problem.digest


@dataclass(frozen=True)
class Planner:
    """Assigns cases to candidates without running a problem's code.

    Attributes:
        choice: The user's choice of cases.
        on_cpu: Whether the emulator judges; only small cases fit it.
        config: The configuration with the timeouts; None for the policy's timeouts. Without it, the
            timeouts of a problem do not count.
    """

    choice: CaseChoice
    on_cpu: bool
    config: RunConfig | None = None

    def job(self, candidate: Candidate, tag: str | None = None) -> Job:
        """Returns the job for a candidate.

        Raises:
            UsageError: A case or constant is unknown.
        """
        problem, limits = candidate.problem, None
        if self.config is not None:
            limits = Limits(*self.config.seconds(problem.timeout_s, problem.build_timeout_s))
        return Job(candidate, self.cases(problem), tag, limits, self.choice.is_main)

    def cases(self, problem: Problem) -> Cases | None:
        """Returns the chosen cases of a problem; None if a lane must find out which ones fit.

        Raises:
            UsageError: A case or constant is unknown.
        """
        choice, cases = self.choice, problem.cases
        if choice.constants:
            problem.check_constants(choice.constants, "--set")
            return ((CUSTOM_CASE, choice.constants),)
        if choice.cases:
            return tuple((name, problem.case(name)) for name in dict.fromkeys(choice.cases))
        if self.on_cpu or cases == UNDECLARED:
            return None
        return ((main_case(problem), cases[main_case(problem)]),) if choice.is_main else tuple(cases.items())


def fitting(problem: Problem, device: str, is_main: bool, is_round: bool = False) -> Planned:
    """Runs a problem's code to find the cases that fit a device, and returns them.

    A problem that declares no cases gets a smaller one if it needs it.

    Args:
        problem: The problem.
        device: ``cpu`` or ``cuda:N``.
        is_main: Whether to return only the smallest case.
        is_round: As in ``small_case``.
    """
    try:
        return _fitting_cpu(problem, is_main, is_round) if device == "cpu" else _fitting_gpu(problem, device)
    except ProblemError as error:
        return Planned((), error=error)
    except Interrupted:
        raise
    except BaseException as error:  # raised by the problem's own functions
        return Planned((), error=failure(problem, "measuring the sizes of its cases", error))


def _fitting_gpu(problem: Problem, device: str) -> Planned:
    """Returns the case of a problem that declares none: its own sizes, or fewer samples if memory is short."""
    import torch

    from harness.judge.inputs.memory_fit import case_memory
    from harness.judge.inputs.shrinking import small_case

    small = small_case(problem, case_memory(torch.device(device)))
    if small is None or not small.constants:
        return Planned(tuple(problem.cases.items()))
    words = f"{problem.name}: its own sizes do not fit this GPU's memory, so it is judged with {small.words}"
    return Planned(((SMALL_CASE, small.constants),), (f"{words}; choose other sizes with --set",))


def _fitting_cpu(problem: Problem, is_main: bool, is_round: bool = False) -> Planned:
    from harness.judge.inputs.memory_fit import size_of, why_not
    from harness.judge.inputs.shrinking import LARGEST_LOAD, small_case
    from harness.system.memory import available_memory

    kept: list[tuple[float, str]] = []
    notes: list[str] = []
    cases = problem.cases
    small = small_case(problem, is_round=is_round)
    if small is not None and small.load > LARGEST_LOAD:
        words = f"{problem.name} does not fit the CPU, even with {small.words or 'its own sizes'}; "
        return Planned((), error=UsageError(words + "choose smaller sizes with --set, or judge it on a GPU"))
    if small is not None and small.constants:
        cases = {SMALL_CASE: small.constants}
        notes.append(f"{problem.name}: judged in a smaller case, {small.words}; choose other sizes with --set")
    for name, constants in cases.items():
        size = size_of(problem, constants)
        reason = why_not(size, available_memory(), is_chosen=cases is not problem.cases)
        if reason is None:
            kept.append((float("inf") if size is None else size.elements, name))
        else:
            words = f"{problem.name}: left out case {name!r} on the CPU: {reason}; force it with --case {name}"
            notes.append(words)
    if not kept:
        words = f"no case of {problem.name} fits the CPU; choose one with --case or --set"
        return Planned((), tuple(notes), UsageError(words))
    names = [min(kept, key=lambda one: one[0])[1]] if is_main else [name for _, name in kept]
    return Planned(tuple((name, cases[name]) for name in names), () if is_main else tuple(notes))
