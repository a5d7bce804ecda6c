"""Builds on the processor's cores, ahead of the candidates' turn on the device."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType

from harness.errors import HarnessError
from harness.executors.plan import Cases, Job
from harness.executors.session import Session
from harness.judge.builder import Refused, build_ahead
from harness.judge.handle import WorkerHandle
from harness.judge.policy import Policy
from harness.memory import available_memory

#: What a compiler for GPUs takes at its most.
BUILD_BYTES = 3 << 30


def most_builders() -> int:
    """How many builds this machine bears side by side: a core is left for the judge, and memory for each."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores - 1, available_memory() // BUILD_BYTES))


@dataclass
class Work:
    """A candidate with what is still to be judged of it.

    Attributes:
        job: The candidate.
        cases: Its cases that the store does not answer for.
        trials: How many trials each of these must pass.
        refused: What a compiler has refused of it.
        build: Its build ahead; None where none was asked for.
    """

    job: Job
    cases: Cases
    trials: tuple[int, ...]
    refused: Refused = field(default_factory=dict)
    build: Future[Refused] | None = None

    def is_settled(self) -> bool:
        """Whether it has been built, or is not to be."""
        if self.build is not None and self.build.done():
            self.refused, self.build = self.build.result(), None
        return self.build is None

    def withdraw(self) -> bool:
        """Have it not be built ahead, where nobody has begun to; whether that is so."""
        if self.build is not None and self.build.cancel():
            self.build = None
        return self.build is None


class Builders:
    """Threads that have solutions built; a context, whose end ends their workers.

    Args:
        session: Where their workers come from, and where libraries are kept.
        policy: How candidates are judged.
        count: How many build side by side.
    """

    def __init__(self, session: Session, policy: Policy, count: int):
        self.count = count
        self._session = session
        self._policy = policy
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="builder")
        self._lock = threading.Lock()
        self._at_work: set[WorkerHandle] = set()
        self._is_quiet = self._is_closed = False

    def __enter__(self) -> Builders:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_closed = True
            for worker in self._at_work:
                worker.stop()
        self._pool.shutdown(cancel_futures=True)

    def begin(self, work: Work) -> None:
        """Have a candidate built, unless something of it is built already."""
        if not self._session.surroundings.cache.libraries(work.job.candidate.solution.digest):
            work.build = self._pool.submit(self._build, work.job)

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """A block in which builders stand still; it is on no clock of theirs."""
        with self._lock:
            self._is_quiet = True
            for worker in self._at_work:
                worker.pause()
        try:
            yield
        finally:
            with self._lock:
                self._is_quiet = False
                for worker in self._at_work:
                    worker.resume()

    def _build(self, job: Job) -> Refused:
        try:
            with contextlib.closing(self._session.builders.take()) as worker, self._working(worker):
                return build_ahead(worker, job.candidate.solution, self._session.surroundings.cache, self._policy)
        except HarnessError:  # whoever judges it meets the same, and tells
            return MappingProxyType({})

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
