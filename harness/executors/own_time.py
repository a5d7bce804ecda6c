"""A timeout on a problem's time in the judge's process: inputs, reference and comparisons."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator

from harness.errors import ProblemError
from harness.executors.prebuild import PlannedWork
from harness.judge.policy import Policy
from harness.judge.process.worker_handle import WorkerHandle
from harness.system.processes import queued_seconds

#: The judge's share of a case, as a multiple of the candidate's timeout. The judge evaluates the
#: reference several times in each trial, also in float64.
SHARE = 10
#: Seconds beyond the share after which the kernel ends the process, because a problem keeps
#: Python's interpreter lock and no thread of the process can run.
GRACE_S = 10.0
#: The longest time that every system's timer takes, in seconds.
_LONGEST_S = 1e8


def share_s(policy: Policy) -> float:
    """Returns the seconds that the judge may work on a case, without its waits for a worker."""
    return SHARE * policy.granted.run_s


def too_long(work: PlannedWork) -> ProblemError:
    """Returns the error of a problem that exceeds the judge's share of its first case.

    Args:
        work: The candidate, with the cases that are left.
    """
    problem = work.job.candidate.problem
    doing = f"judging case {work.cases[0][0]!r}" if work.cases else "measuring the sizes of its cases"
    return ProblemError(
        f"{problem.path}: {doing} took longer than {share_s(work.policy):g} s beside the candidate's own time "
        f"({SHARE} times --timeout): its inputs or its reference take too long; choose a smaller case, or evaluate it "
        "with a larger --timeout"
    )


def unqueued_s() -> float:
    """Returns a clock of this process that stands while other processes keep its main thread waiting."""
    return time.monotonic() - queued_seconds()


def end_process_after(seconds: float) -> None:
    """Has the kernel end this process by SIGALRM after so many seconds; 0 calls it off."""
    signal.setitimer(signal.ITIMER_REAL, min(seconds, _LONGEST_S))


class OwnTime:
    """A limit on how long the judge works on a case, without its waits for a worker.

    A thread watches the time and reports. It cannot run while a problem keeps Python's interpreter
    lock. Then the kernel ends the process a little later.

    Args:
        report: Called once, in the thread, when the judge exceeds its share.
        clock: Returns the time in seconds.
        waited_s: Returns the seconds that this process has spent waiting for workers.
        end_after: Has the process ended after so many seconds, whatever it does; 0 calls it off.
    """

    def __init__(
        self,
        report: Callable[[], None],
        clock: Callable[[], float] = unqueued_s,
        waited_s: Callable[[], float] = WorkerHandle.waited.seconds,
        end_after: Callable[[float], None] = end_process_after,
    ):
        self._report = report
        self._clock, self._waited_s, self._end_after = clock, waited_s, end_after
        self._changed = threading.Condition()
        self._limit_s: float | None = None
        self._began_s = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    @contextlib.contextmanager
    def of(self, limit_s: float) -> Iterator[None]:
        """Watches the block, in which the judge may work so many seconds on each case."""
        with self._changed:
            self._limit_s = limit_s
            self._begin()
        try:
            yield
        finally:
            with self._changed:
                self._limit_s = None
                self._end_after(0.0)

    def next_case(self) -> None:
        """Restarts the count for the next case."""
        with self._changed:
            self._begin()

    def left_s(self) -> float | None:
        """Returns the seconds left of the judge's share; None outside ``of``."""
        if self._limit_s is None:
            return None
        return self._limit_s - (self._own_s() - self._began_s)

    def _begin(self) -> None:
        assert self._limit_s is not None
        self._began_s = self._own_s()
        self._end_after(self._limit_s + GRACE_S)
        self._changed.notify()

    def _own_s(self) -> float:
        return self._clock() - self._waited_s()

    def _watch(self) -> None:
        with self._changed:
            while (left := self.left_s()) is None or left > 0:
                if left is not None:
                    self._end_after(left + GRACE_S)
                self._changed.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
            self._report()  # holds the lock, so no other case begins
