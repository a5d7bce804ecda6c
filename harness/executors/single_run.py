"""Single runs: judge one candidate on one case in a lane's process, without scheduler and store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.device.devices import guess
from harness.errors import HarnessError, ProblemError
from harness.executors.lane_handle import LaneDied, LaneProcess, opening_of
from harness.executors.own_time import too_long
from harness.executors.plan import Job, Planned
from harness.executors.prebuild import PlannedWork
from harness.executors.protocol import Opening, Overrun, TimingTurn, Words
from harness.judge.policy import Policy
from harness.records.record import EvaluationRecord
from harness.system.interrupts import shielded, unwinding
from harness.system.processes import adopt_orphans
from harness.system.scratch import check_temporary_folder

Progress = Callable[[str], None]


@contextlib.contextmanager
def lane_alone(wanted_device: str, home: Path, *, is_timed: bool) -> Iterator[LaneProcess]:
    """Opens a lane's process for the block; its ``device`` is the device that it found.

    Args:
        wanted_device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        home: ``HARNESS_HOME``.
        is_timed: Whether the lane measures speed on a GPU.

    Raises:
        UsageError: ``wanted_device`` means no device.
        HarnessError: The device or its compiler is missing.
    """
    guess(wanted_device)
    check_temporary_folder()
    adopt_orphans()
    with contextlib.ExitStack() as stack, unwinding():
        with shielded():
            lane = LaneProcess(Opening(wanted_device, home, is_timed, os.getpid(), is_alone=True))
            stack.callback(lane.close)
        lane.device = opening_of(lane).device
        yield lane


def judged(lane: LaneProcess, job: Job, policy: Policy, trials: int, progress: Progress) -> EvaluationRecord:
    """Has the lane judge a candidate on one case, and returns the record.

    Args:
        lane: The lane.
        job: The candidate and its case; if it has none, the lane chooses one that fits.
        policy: The policy to judge by.
        trials: The number of trials that the candidate must pass.
        progress: Called with the name of the current step.

    Raises:
        UsageError: No case fits.
        ProblemError: The problem does not run or takes too long.
        HarnessError: The device no longer works, or the problem ended the lane's process.
    """
    if job.cases is None:
        chosen = _said(lane, PlannedWork(job, policy, (), trials=()), progress)
        assert isinstance(chosen, Planned)
        if chosen.error is not None:
            raise chosen.error
        job = replace(job, cases=chosen.cases)
    assert job.cases is not None
    said = _said(lane, PlannedWork(job, policy, job.cases, trials=(trials,)), progress)
    if isinstance(said, ProblemError):
        raise said
    assert isinstance(said, EvaluationRecord)
    return said


def _said(lane: LaneProcess, work: PlannedWork, progress: Progress) -> Planned | EvaluationRecord | ProblemError:
    """Gives the lane its work and returns the answer."""
    lane.send(work)
    while True:
        said = _next(lane, work)
        if isinstance(said, Words):
            progress(said.words)
        elif isinstance(said, TimingTurn):
            if said.begins:
                lane.answer()
        elif isinstance(said, Overrun):
            raise too_long(work)
        else:
            assert isinstance(said, Planned | EvaluationRecord | ProblemError)
            return said


def _next(lane: LaneProcess, work: PlannedWork) -> Any:
    try:
        return lane.receive()
    except LaneDied as death:
        problem = work.job.candidate.problem
        raise HarnessError(
            f"{problem.path}: the process that judges ended ({death}); look whether the problem's code ends it"
        ) from None
