"""One solution on one case, judged as ever but in one trial and without a rival; the record is kept nowhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.errors import ProblemError, ToolchainError, UsageError
from harness.executors.plan import Choice
from harness.executors.tools import tools_for
from harness.interrupts import unwinding
from harness.judge.handle import Limits
from harness.memory import available_memory
from harness.problems import CUSTOM_CASE, Problem, fault_of
from harness.processes import adopt_orphans
from harness.records import EvaluationRecord
from harness.solutions import Candidate
from harness.streams import results_alone

if TYPE_CHECKING:
    from harness.judge.handle import Workers

#: The case that is meant on a GPU where none is named.
FULL_CASE = "full"


class Case(NamedTuple):
    """A case's name, and the constants that it replaces."""

    name: str
    constants: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """What is to be judged.

    Attributes:
        candidate: The solution.
        choice: On which case; at most one.
        limits: Seconds that it may run and build.
        home: ``HARNESS_HOME``.
        progress: Called with a word for what happens now.
    """

    candidate: Candidate
    choice: Choice
    limits: Limits
    home: Path
    progress: Callable[[str], None] = lambda _: None


def judged_once(task: Task, wanted_device: str) -> EvaluationRecord:
    """Judge a solution in one trial; what it launches is in the record where it passes.

    Args:
        task: What is to be judged.
        wanted_device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        UsageError: It is no device, the case is unknown, or none fits the device.
        ProblemError: The problem does not run.
        HarnessError: What builds for the device, or the device itself, is missing.
    """
    from harness import devices
    from harness.judge.handle import Workers

    likely = devices.guess(wanted_device)
    try:
        tools = tools_for(likely, task.home)
    except ToolchainError:
        likely = str(devices.choose(wanted_device))  # a driver without a torch for it: not this device after all
        tools = tools_for(likely, task.home)
    adopt_orphans()  # of a worker that ends before what it has started
    with contextlib.ExitStack() as stack:
        workers = stack.enter_context(contextlib.closing(Workers(likely, tools.libraries, available_memory() // 2)))
        stack.enter_context(unwinding())
        workers.start_ahead()  # it imports torch while this process does
        device = str(devices.choose(wanted_device))
        if device == likely:
            stack.enter_context(results_alone())
            return _record(task, device, tools.compiler, workers)
    return judged_once(task, device)


def chosen_case(problem: Problem, choice: Choice, on_cpu: bool) -> Case:
    """The one case that is meant: the named one, else ``full`` on a GPU and the smallest that fits on the CPU.

    Raises:
        UsageError: The case or a constant is unknown, or none fits the CPU.
        ProblemError: The problem does not run.
    """
    if choice.constants:
        problem.check_constants(choice.constants, "--set")
        return Case(CUSTOM_CASE, choice.constants)
    if choice.cases:
        return Case(choice.cases[0], problem.case(choice.cases[0]))
    if not on_cpu:
        name = FULL_CASE if FULL_CASE in problem.cases else next(iter(problem.cases))
        return Case(name, problem.cases[name])
    from harness.judge.fitting import size_of, why_not

    fitting: list[tuple[float, Case]] = []
    with _faults_told(problem):
        for name, constants in problem.cases.items():
            size = size_of(problem, constants)
            if why_not(size, available_memory()) is None:
                fitting.append((float("inf") if size is None else size.elements, Case(name, constants)))
    if not fitting:
        raise UsageError(f"no case of {problem.name} fits the CPU; choose one with --case or --set")
    return min(fitting, key=lambda one: one[0])[1]


def _record(task: Task, device: str, compiler: str, workers: Workers) -> EvaluationRecord:
    from harness.judge.draws import new_secret
    from harness.judge.evaluation import CandidateJudge, Policy, Surroundings

    problem = task.candidate.problem
    case = chosen_case(problem, task.choice, device == "cpu")
    policy = Policy(device, new_secret(), task.limits)
    surroundings = Surroundings.of_this_machine(task.home, compiler, device)
    judge = CandidateJudge(task.candidate, policy, surroundings, workers, task.progress)
    with contextlib.closing(judge), _faults_told(problem):
        return judge.evaluate(*case, trials=1)


@contextlib.contextmanager
def _faults_told(problem: Problem) -> Iterator[None]:
    """Have what a problem's own code raises in this process arrive as the problem's error."""
    try:
        yield
    except ProblemError:
        raise
    except (Exception, SystemExit, GeneratorExit) as error:
        fault = fault_of(problem, error)
        if fault is None:
            raise
        raise fault from None
