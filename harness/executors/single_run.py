"""One solution on one case, judged as ever but in one trial and without a rival; the record is kept nowhere."""

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
    """A case's name, and the constants that it replaces."""

    name: str
    constants: dict[str, Any]


@dataclass(frozen=True)
class SingleRunTask:
    """What is to be judged.

    Attributes:
        candidate: The solution.
        choice: On which case; at most one.
        limits: Seconds that it may run and build.
        home: ``HARNESS_HOME``.
        progress: Called with a word for what happens now.
    """

    candidate: Candidate
    choice: CaseChoice
    limits: Limits
    home: Path
    progress: Callable[[str], None] = lambda _: None


def judged_once(task: SingleRunTask, wanted_device: str) -> EvaluationRecord:
    """Judge a solution in one trial; what it launches is in the record where it passes.

    Args:
        task: What is to be judged.
        wanted_device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises:
        UsageError: It is no device, the case is unknown, or none fits the device.
        ProblemError: The problem does not run.
        HarnessError: What builds for the device, or the device itself, is missing.
    """
    with opened(wanted_device, task.home, is_timed=False) as session, results_alone():
        return _record(task, session)


def chosen_case(problem: Problem, choice: CaseChoice, on_cpu: bool) -> Case:
    """The one case that is meant: the named one, else ``full`` on a GPU and the smallest that fits on the CPU.

    Raises:
        UsageError: The case or a constant is unknown, or none fits the CPU.
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
