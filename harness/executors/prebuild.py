"""Builds on the processor's cores, ahead of the candidates' turn on the device."""

from __future__ import annotations

import abc
import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from harness.compilation.cache import BuildCache
from harness.errors import HarnessError
from harness.executors.plan import Cases, Job
from harness.judge.evaluation.builder import Refused, build_ahead
from harness.judge.policy import Policy
from harness.judge.process.handle import WorkerHandle
from harness.judge.process.workers import Workers
from harness.system.memory import available_memory

#: What a compiler for GPUs takes at its most.
BUILD_BYTES = 3 << 30


def most_builders() -> int:
    """How many builds this machine bears side by side: a core is left for the judge, and memory for each."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores - 1, available_memory() // BUILD_BYTES))


@dataclass
class PlannedWork:
    """A candidate with what is still to be judged of it.

    Attributes:
        job: The candidate.
        policy: How it is judged.
        cases: Its cases that the store does not answer for.
        trials: How many trials each of these must pass.
        refused: What a compiler has refused of it.
        build: Its build ahead; None where none was asked for.
        deaths: How many lanes have ended while they judged it.
        has_next: Whether another candidate follows, as far as is known.
    """

    job: Job
    policy: Policy
    cases: Cases
    trials: tuple[int, ...]
    refused: Refused = field(default_factory=dict)
    build: Future[Refused] | None = None
    deaths: int = 0
    has_next: bool = False

    @property
    def is_planned(self) -> bool:
        """Whether its cases are known."""
        return self.job.cases is not None

    def is_settled(self) -> bool:
        """Whether it has been built, or is not to be."""
        if self.build is not None and self.build.done():
            # Whoever judges it meets a failure of the builder, too, and tells.
            self.refused, self.build = {} if self.build.exception() else self.build.result(), None
        return self.build is None

    def withdraw(self) -> bool:
        """Have it not be built ahead, where nobody has begun to; whether that is so."""
        if self.build is not None and self.build.cancel():
            self.build = None
        return self.build is None


class Builders(abc.ABC):
    """Threads that have solutions built; a context, whose end ends what they have started.

    Args:
        cache: Where libraries are kept.
        count: How many build side by side.
    """

    def __init__(self, cache: BuildCache, count: int):
        self._cache = cache
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="builder")
        self._finished, self._telling = os.pipe()
        os.set_blocking(self._finished, False)
        os.set_blocking(self._telling, False)

    def __enter__(self) -> Builders:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._pool.shutdown(cancel_futures=True)
        os.close(self._finished)
        os.close(self._telling)

    def begin(self, work: PlannedWork) -> None:
        """Have a candidate built, unless something of it is built already."""
        if not self._cache.libraries(work.job.candidate.solution.digest):
            work.build = self._pool.submit(self._build, work.job, work.policy)
            work.build.add_done_callback(lambda _: self._tell())

    def fileno(self) -> int:
        """A descriptor that can be read once a build has finished since ``forget_finished``."""
        return self._finished

    def forget_finished(self) -> None:
        """Have the descriptor wait for the next build."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._finished, 1 << 16)

    def _tell(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._telling, b"!")

    @abc.abstractmethod
    def stop(self) -> None:
        """Have all builds end at once, and none begin."""

    def pause(self) -> None:  # noqa: B027 - builders elsewhere disturb nobody
        """Have builds on this machine stand still; that time is on no clock of theirs."""

    def resume(self) -> None:  # noqa: B027
        """Have them go on; nothing where they do."""

    @abc.abstractmethod
    def _build(self, job: Job, policy: Policy) -> Refused:
        """Build a candidate, in a thread; what a compiler refused."""


class LocalBuilders(Builders):
    """Builders on this machine.

    Args:
        workers: Where their workers come from, which see no GPU.
        cache: Where libraries are kept.
        most: How many may be of use; no more than the machine bears build side by side.
    """

    def __init__(self, workers: Workers, cache: BuildCache, most: int):
        super().__init__(cache, min(most, most_builders()))
        self._workers = workers
        self._lock = threading.Lock()
        self._at_work: set[WorkerHandle] = set()
        self._is_quiet = self._is_closed = False

    def stop(self) -> None:
        """End the workers."""
        with self._lock:
            self._is_closed = True
            for worker in self._at_work:
                worker.stop()

    def pause(self) -> None:
        """Have the workers stand still."""
        with self._lock:
            self._is_quiet = True
            for worker in self._at_work:
                worker.pause()

    def resume(self) -> None:
        """Have the workers go on."""
        with self._lock:
            if self._is_quiet:
                self._is_quiet = False
                for worker in self._at_work:
                    worker.resume()

    def _build(self, job: Job, policy: Policy) -> Refused:
        try:
            with contextlib.closing(self._workers.take()) as worker, self._working(worker):
                return build_ahead(worker, job.candidate.solution, self._cache, policy)
        except HarnessError:  # whoever judges it meets the same, and tells
            return {}

    @contextlib.contextmanager
    def _working(self, worker: WorkerHandle) -> Iterator[None]:
        with self._lock:
            self._at_work.add(worker)
            if self._is_closed:
                worker.stop()
            elif self._is_quiet:
                worker.pause()
        try:
            yield
        finally:
            with self._lock:
                self._at_work.discard(worker)
