"""Tracks the results of a command that judges: its exit code, and whether to stop early."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator

from tqdm import tqdm

from harness.errors import EXIT_HARNESS, EXIT_NOT_PASSED, EXIT_PASSED, EXIT_USAGE
from harness.executors.scheduler import Fault
from harness.records.record import EvaluationRecord, Status
from harness.report.ci import CaseResult
from harness.report.fitness import unfit_lines
from harness.system.text import one_line, printable


class RunOutcome:
    """The results of a command so far: its exit code, and whether to stop early.

    Args:
        fails_fast: Whether to stop at the first candidate that does not pass.
        max_hours: The hours after which nothing more begins; None for no limit.
        fail_below: The least speedup that is enough; None for no bound.
        collects: Whether to keep a result of each record and fault, for a report.

    Attributes:
        statuses: The number of records by status.
        slow: A message for each passed record whose speedup is not enough.
        has_bad_problem: Whether a problem did not run or lacks a requested case.
        results: A result for each record and fault, if they are collected.
        deadline: The time on the monotonic clock after which nothing more begins; None for no
            limit.
    """

    def __init__(self, fails_fast: bool, max_hours: float | None, fail_below: float | None, collects: bool = False):
        self.statuses: Counter[Status] = Counter()
        self.slow: list[str] = []
        self.has_bad_problem = False
        self._fails_fast = fails_fast
        self._max_hours = max_hours
        self.deadline = None if max_hours is None else time.monotonic() + max_hours * 3600
        self._fail_below = fail_below
        self._has_bad_line = False
        self._is_stopped = False
        self._told: set[str] = set()
        self.results: list[CaseResult] = []
        self._collects = collects

    def add(self, record: EvaluationRecord, stored: bool) -> None:
        """Counts a record.

        Args:
            record: The record.
            stored: Whether it comes from the store.
        """
        if self._collects:
            self.results.append(CaseResult.of(record, stored))
        self.statuses[record.status] += 1
        self.slow += _too_slow(record, self._fail_below)

    def add_fault(self, fault: Fault) -> None:
        """Counts a request without a verdict.

        It prints each reason once, since several candidates may share it.
        """
        if self._collects:
            case = fault.case or "all cases"
            self.results.append(CaseResult(fault.problem or "", fault.solution, case, None, str(fault.error)))
        if fault.problem is None:
            self._has_bad_line = True
        else:
            self.has_bad_problem = True
        self._tell(f"error: {fault.error}")

    def warn_unfit(self, record: EvaluationRecord) -> None:
        """Warns once if a record's problem cannot tell right from wrong answers on its case."""
        for line in unfit_lines([record]):
            self._tell(line)

    def _tell(self, line: str) -> None:
        if line not in self._told:
            tqdm.write(printable(line), file=sys.stderr)
        self._told.add(line)

    def why_stop(self) -> str:
        """Returns the reason to stop judging; empty if there is none."""
        words = ""
        if self._fails_fast and (set(self.statuses) - {Status.PASSED} or self.has_bad_problem):
            words = "stopped at the first candidate that did not pass (--fail-fast)"
        elif self.deadline is not None and time.monotonic() > self.deadline:
            words = f"stopped after {self._max_hours:g} hours (--max-hours)"
        self._is_stopped = bool(words)
        return words

    @property
    def counts(self) -> str:
        """The numbers of cases that passed and failed so far."""
        passed = self.statuses[Status.PASSED]
        return f"{passed} passed, {self.statuses.total() - passed} failed"

    @property
    def is_empty(self) -> bool:
        """Tells whether nothing was asked for: there is neither a verdict nor a fault nor a reason to stop."""
        return not (self.statuses or self.has_bad_problem or self._has_bad_line or self._is_stopped)

    @property
    def code(self) -> int:
        """The exit code. Candidates that were left out count as not passed."""
        has_fault = self.has_bad_problem or self._has_bad_line
        if self._is_stopped and not self.statuses and not has_fault:
            return EXIT_NOT_PASSED
        code = exit_code(self.statuses, has_fault)
        return code or (EXIT_NOT_PASSED if self.slow or self._is_stopped else EXIT_PASSED)


def _too_slow(record: EvaluationRecord, bound: float | None) -> Iterator[str]:
    """Yields a sentence for each direction of a passed record whose speedup is below the bound.

    A speedup that was not measured counts as below the bound.
    """
    if bound is None or record.status is not Status.PASSED:
        return
    for direction in ("forward", "forward_backward") if record.gradients else ("forward",):
        speedup = (record.speedup or {}).get(direction)
        if speedup is None or not speedup >= bound:
            words = "was not measured" if speedup is None else f"is {speedup:.3g}"
            yield f"{one_line(record.solution)} {record.case}: speedup {direction} {words}, below {bound}"


def exit_code(statuses: Iterable[Status], bad_problem: bool) -> int:
    """Returns the program's exit code.

    A bad problem outranks a failure of the harness, which outranks a candidate that did not pass.
    If nothing was judged, the code means wrong usage.
    """
    found = set(statuses)
    if bad_problem or not found:
        return EXIT_USAGE
    if Status.HARNESS_ERROR in found:
        return EXIT_HARNESS
    return EXIT_PASSED if found == {Status.PASSED} else EXIT_NOT_PASSED
