"""Single runs: judge one solution on one case in one trial, with no timing and no store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import ProblemError
from harness.executors.plan import CaseChoice, Planner, fitting
from harness.executors.session import Session, opened
from harness.judge.process.clocks import Limits
from harness.project.problems import Problem, fault_of
from harness.project.solutions import Candidate
from harness.records.record import EvaluationRecord
from harness.system.streams import results_alone


class Case(NamedTuple):
    """A case's name and the constants that it replaces."""

    name: str
    constants: dict[str, Any]


@dataclass(frozen=True)
class SingleRunTask:
    """A solution to judge in a single run.

    Attributes:
        candidate: The solution and its problem.
        choice: The choice of cases, at most one.
        limits: The timeouts in seconds for running and building.
        home: ``HARNESS_HOME``.
        progress: Called with the name of the current step.
    """

    candidate: Candidate
    choice: CaseChoice
    limits: Limits
    home: Path
    progress: Callable[[str], None] = lambda _: None


def judged_once(task: SingleRunTask, wanted_device: str) -> EvaluationRecord:
    """Judges a solution in one trial.

    Args:
        task: The solution and its case.
        wanted_device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Returns:
        The record; it lists the launched kernels if the solution passed.

    Raises:
        UsageError: ``wanted_device`` means no device, the case is unknown, or no case fits the
            device.
        ProblemError: The problem does not run.
        HarnessError: The device or its compiler is missing.
    """
    with opened(wanted_device, task.home, is_timed=False) as session, results_alone():
        return _record(task, session)


def chosen_case(problem: Problem, choice: CaseChoice, on_cpu: bool) -> Case:
    """Returns the chosen case, else ``full`` on a GPU or the smallest case that fits on the CPU.

    Raises:
        UsageError: The case or a constant is unknown, or no case fits the CPU.
        ProblemError: The problem does not run.
    """
    chosen = Planner(replace(choice, is_main=True), on_cpu).cases(problem)
    if chosen is None:
        planned = fitting(problem, is_main=True)
        if planned.error is not None:
            raise planned.error
        chosen = planned.cases
    elif on_cpu:
        from harness.judge.inputs.memory_fit import check_room

        with faults_told(problem):
            check_room(problem, *chosen[0])
    return Case(*chosen[0])


def _record(task: SingleRunTask, session: Session) -> EvaluationRecord:
    from harness.judge.evaluation.candidate_judge import CandidateJudge
    from harness.judge.policy import Policy, new_secret

    problem = task.candidate.problem
    case = chosen_case(problem, task.choice, session.device == "cpu")
    policy = Policy(session.device, new_secret(), task.limits)
    judge = CandidateJudge(task.candidate, policy, session.surroundings, session.workers, progress=task.progress)
    with contextlib.closing(judge), faults_told(problem):
        return judge.evaluate(*case, trials=1)


@contextlib.contextmanager
def faults_told(problem: Problem) -> Iterator[None]:
    """Turns exceptions of a problem's own code into ``ProblemError``."""
    try:
        yield
    except ProblemError:
        raise
    except (Exception, SystemExit, GeneratorExit) as error:
        fault = fault_of(problem, error)
        if fault is None:
            raise
        raise fault from None
