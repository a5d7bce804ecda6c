"""A timeout on a problem's time in the judge's process: inputs, reference and comparisons."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from harness.errors import ProblemError
from harness.executors.prebuild import PlannedWork
from harness.judge.process.handle import WorkerHandle

#: The judge's share of a case, as a multiple of the candidate's timeout. The judge evaluates the
#: reference several times in each trial, also in float64.
SHARE = 10


class OwnTime:
    """A thread that limits how long the judge works on a case, without its waits for a worker.

    Args:
        report: Called once, in the thread, with the error of a problem that exceeds its share.
        clock: Returns the time in seconds.
        waited_s: Returns the seconds that this process has spent waiting for workers.
    """

    def __init__(
        self,
        report: Callable[[ProblemError], None],
        clock: Callable[[], float] = time.monotonic,
        waited_s: Callable[[], float] = WorkerHandle.waited.seconds,
    ):
        self._report = report
        self._clock, self._waited_s = clock, waited_s
        self._changed = threading.Condition()
        self._work: PlannedWork | None = None
        self._cases: list[str] = []
        self._began_s = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    @contextlib.contextmanager
    def of(self, work: PlannedWork) -> Iterator[None]:
        """Watches the block, in which the judge judges a candidate or sizes its cases."""
        with self._changed:
            self._work, self._cases = work, [name for name, _ in work.cases]
            self._begin()
        try:
            yield
        finally:
            with self._changed:
                self._work = None

    def next_case(self) -> None:
        """Restarts the count for the next case."""
        with self._changed:
            self._cases = self._cases[1:]
            self._begin()

    def left_s(self) -> float | None:
        """Returns the seconds left of the judge's share; None outside ``of``."""
        if self._work is None:
            return None
        return SHARE * self._work.policy.granted.run_s - (self._own_s() - self._began_s)

    def _begin(self) -> None:
        self._began_s = self._own_s()
        self._changed.notify()

    def _own_s(self) -> float:
        return self._clock() - self._waited_s()

    def _watch(self) -> None:
        with self._changed:
            while (left := self.left_s()) is None or left > 0:
                self._changed.wait(None if left is None else min(left, threading.TIMEOUT_MAX))
            self._report(self._error())  # holds the lock, so no other case begins

    def _error(self) -> ProblemError:
        assert self._work is not None
        problem, limit = self._work.job.candidate.problem, SHARE * self._work.policy.granted.run_s
        doing = f"judging case {self._cases[0]!r}" if self._cases else "measuring the sizes of its cases"
        return ProblemError(
            f"{problem.path}: {doing} took longer than {limit:g} s beside the candidate's own time ({SHARE} times "
            "--timeout): its inputs or its reference take too long; choose a smaller case, or raise --timeout"
        )
