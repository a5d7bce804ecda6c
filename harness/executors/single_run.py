"""Single runs: judge one solution on one case in one trial, with no timing and no store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import ProblemError
from harness.executors.plan import CaseChoice, Job, Planner, fitting
from harness.executors.session import Session, opened
from harness.judge.process.clocks import Limits
from harness.project.problems import Problem
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
    return Case(*chosen[0])


def _record(task: SingleRunTask, session: Session) -> EvaluationRecord:
    from harness.executors.lane import Lane
    from harness.executors.prebuild import PlannedWork
    from harness.judge.policy import Policy, new_secret

    candidate = task.candidate
    cases = (chosen_case(candidate.problem, task.choice, session.device == "cpu"),)
    policy = Policy(session.device, new_secret(), task.limits)
    (outcome,) = Lane(session).judge(PlannedWork(Job(candidate, cases), policy, cases, trials=(1,)), task.progress)
    if isinstance(outcome, ProblemError):
        raise outcome
    return outcome
