"""Validates a problem in a process of its own, so that the problem can neither end nor hold up the command."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from harness.executors.lane_handle import LaneDied, LaneProcess
from harness.executors.own_time import SHARE
from harness.executors.protocol import CaseBegun, Overrun, Validation, ValidationFinished
from harness.judge.validation.check_types import ProblemCheck
from harness.project.problems import Problem
from harness.system.interrupts import shielded, unwinding
from harness.system.processes import adopt_orphans

#: The name of the check that fails if the problem ends its process or takes too long.
PROCESS = "process"


def checks(
    problem: Problem, device: str, cases: Mapping[str, dict[str, Any]], limit_s: float
) -> Iterator[ProblemCheck]:
    """Checks a problem.

    Args:
        problem: The problem.
        device: The device, as ``--device`` takes it.
        cases: Constants by case name; empty for all cases that fit the device.
        limit_s: The seconds that each check may take.

    Yields:
        Each result as soon as it is known. The last one is a failed ``process`` if the problem ends
        the process or takes too long.

    Raises:
        UsageError: There is no such device.
        HarnessError: The device does not work.
    """
    adopt_orphans()
    with unwinding():
        with shielded():
            process = LaneProcess(Validation(problem, device, dict(cases), limit_s, os.getpid()))
        try:
            case: str | None = None
            while not isinstance(said := _said(process), ValidationFinished):
                if isinstance(said, CaseBegun):
                    case = said.name
                elif isinstance(said, ProblemCheck):
                    yield said
                else:
                    slow = f"the next check took longer than {limit_s:g} s ({SHARE} times --timeout)"
                    words = slow if isinstance(said, Overrun) else str(said)
                    yield ProblemCheck(PROCESS, False, f"{problem.path}: {words}; the rest is not checked", case)
                    return
        finally:
            process.close()


def _said(process: LaneProcess) -> object:
    """Returns the process's next message, or how it died in words."""
    try:
        return process.receive()
    except LaneDied as death:
        return f"the problem ended the process that judges it ({death})"
