"""Builders that compile candidates on the CPU's cores ahead of their turn on the device."""

from __future__ import annotations

import abc
import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from harness.compilation.cache import BuildCache
from harness.errors import HarnessError
from harness.executors.plan import Cases, Job
from harness.judge.evaluation.builder import Refused, build_ahead
from harness.judge.policy import Policy
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.process.workers import Workers
from harness.records.kernels import CompiledKernel
from harness.system.memory import available_memory

#: Peak memory of a GPU compiler in bytes.
BUILD_BYTES = 3 << 30
#: Cores for each of several GPUs: its lane, the candidate's worker and that of the baselines.
CORES_OF_LANE = 3
#: torch's module of ``load_inline`` and ``load``, which a text names if it builds anything.
LOADERS = "cpp_extension"


def most_builders(gpus: int = 0) -> int:
    """Returns the largest number of parallel builds for this machine's cores and free memory.

    One core stays free for the judge. On several GPUs builds do not pause while a candidate is timed. So
    each lane keeps three cores for itself, its candidate and its baselines, up to half of all cores.

    Args:
        gpus: Number of lanes that are on GPUs.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    kept = 1 if gpus < 2 else min(gpus * CORES_OF_LANE, cores // 2)
    return max(1, min(cores - kept, available_memory() // BUILD_BYTES))


@dataclass
class PlannedWork:
    """A candidate and its cases that remain to be judged.

    Attributes:
        job: The candidate's job.
        policy: The policy to judge by.
        cases: The cases that the store has no answer for.
        trials: The number of trials that each of these cases must pass.
        refused: The compiler's refusals.
        build: The build ahead; None if there is none.
        deaths: The number of lanes that ended while they judged the candidate.
        has_next: Whether another candidate may follow.
        kernels: nvcc's figures of its kernels; None before they are looked up.
    """

    job: Job
    policy: Policy
    cases: Cases
    trials: tuple[int, ...]
    refused: Refused = field(default_factory=dict)
    build: Future[Refused] | None = None
    deaths: int = 0
    has_next: bool = False
    kernels: tuple[CompiledKernel, ...] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields for a lane's process; the driver keeps the build."""
        return {**vars(self), "build": None}

    @property
    def is_planned(self) -> bool:
        """Returns whether the candidate's cases are known."""
        return self.job.cases is not None

    def is_settled(self) -> bool:
        """Returns whether no build ahead is pending; takes over the result of a finished one."""
        if self.build is not None and self.build.done():
            # If the builder failed, the lane meets the same error and reports it.
            self.refused, self.build = {} if self.build.exception() else self.build.result(), None
        return self.build is None

    def withdraw(self) -> bool:
        """Cancels a build that has not begun; returns whether no build ahead is left."""
        if self.build is not None and self.build.cancel():
            self.build = None
        return self.build is None


class Builders(abc.ABC):
    """A pool of threads that build candidates; a context manager that ends their builds on exit.

    Args:
        cache: The build cache.
        count: The number of parallel builds.
    """

    def __init__(self, cache: BuildCache, count: int):
        self.count = count
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
        """Starts a candidate's build, unless its text builds nothing or the cache already knows a build of it."""
        solution = work.job.candidate.solution
        is_known = self._cache.libraries(solution.digest) or self._cache.refusals(solution.digest)
        if LOADERS in solution.source and not is_known:
            work.build = self._pool.submit(self._build, work.job, work.policy)
            work.build.add_done_callback(lambda _: self._tell())

    def fileno(self) -> int:
        """Returns a descriptor that is readable after a build finishes.

        ``forget_finished`` resets it.
        """
        return self._finished

    def forget_finished(self) -> None:
        """Resets the descriptor so that it waits for the next finished build."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._finished, 1 << 16)

    def _tell(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._telling, b"!")

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends all builds at once and lets no other begin."""

    def pause(self) -> None:  # noqa: B027 - builders on other machines disturb no timing
        """Pauses the builds on this machine; their timeouts do not count the pause."""

    def resume(self) -> None:  # noqa: B027
        """Resumes paused builds; does nothing if none is paused."""

    @abc.abstractmethod
    def _build(self, job: Job, policy: Policy) -> Refused:
        """Builds a candidate in a thread of the pool, and returns the compiler's refusals."""


class LocalBuilders(Builders):
    """A pool of builders on this machine.

    Args:
        workers: The source of workers, which see no GPU.
        cache: The build cache.
        count: The number of parallel builds.
    """

    def __init__(self, workers: Workers, cache: BuildCache, count: int):
        super().__init__(cache, count)
        self._workers = workers
        self._lock = threading.Lock()
        self._at_work: set[WorkerHandle] = set()
        self._is_quiet = self._is_closed = False

    def stop(self) -> None:
        """Ends the workers and lets no build begin."""
        with self._lock:
            self._is_closed = True
            for worker in self._at_work:
                worker.kill()

    def pause(self) -> None:
        """Pauses the workers."""
        with self._lock:
            self._is_quiet = True
            for worker in self._at_work:
                worker.pause()

    def resume(self) -> None:
        """Resumes the workers."""
        with self._lock:
            if self._is_quiet:
                self._is_quiet = False
                for worker in self._at_work:
                    worker.resume()

    def _build(self, job: Job, policy: Policy) -> Refused:
        try:
            return build_ahead(self._opened, job.candidate, job.first_constants, self._cache, policy)
        except HarnessError:  # the lane meets the same error and reports it
            return {}

    @contextlib.contextmanager
    def _opened(self) -> Iterator[WorkerHandle]:
        with contextlib.closing(self._workers.take()) as worker:
            with self._lock:
                self._at_work.add(worker)
                if self._is_closed:
                    worker.kill()
                elif self._is_quiet:
                    worker.pause()
            try:
                yield worker
            finally:
                with self._lock:
                    self._at_work.discard(worker)
