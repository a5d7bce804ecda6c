"""A bound on what a problem takes in the judge's process: drawing inputs, its reference, comparisons."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from harness.errors import ProblemError
from harness.executors.prebuild import PlannedWork
from harness.judge.process.handle import WorkerHandle

#: The judge's own share of a case may take so many times what the candidate may run. It evaluates the reference
#: several times in each trial, in float64 as well.
SHARE = 10


class OwnTime:
    """Watches, in a thread, how long the judge's main thread works on a case without waiting for a worker.

    Args:
        report: Called in the thread, once, with the error of a problem that takes longer than its share.
        clock: Seconds that pass.
        waited_s: Seconds that this process has spent waiting for workers so far.
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
        """A block in which a candidate is judged, or its cases are sized."""
        with self._changed:
            self._work, self._cases = work, [name for name, _ in work.cases]
            self._begin()
        try:
            yield
        finally:
            with self._changed:
                self._work = None

    def next_case(self) -> None:
        """Count anew: a case is finished."""
        with self._changed:
            self._cases = self._cases[1:]
            self._begin()

    def left_s(self) -> float | None:
        """Seconds that are left of the share; None where nothing is judged."""
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
            self._report(self._error())  # meanwhile no other case begins

    def _error(self) -> ProblemError:
        assert self._work is not None
        problem, limit = self._work.job.candidate.problem, SHARE * self._work.policy.granted.run_s
        doing = f"judging case {self._cases[0]!r}" if self._cases else "sizing its cases"
        return ProblemError(
            f"{problem.path}: {doing} took longer than {limit:g} s beside the candidate's own time ({SHARE} times "
            "--timeout): its inputs or its reference take too long; choose a smaller case, or raise --timeout"
        )
