"""The evaluator for programs that run an event loop: ``AsyncEvaluator``."""

from __future__ import annotations

import asyncio
import enum
import os
import threading
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

from harness.entries import Answer, Entry
from harness.errors import DeadlineExceeded, HarnessError, UsageError
from harness.evaluator import Evaluator
from harness.evaluator_arguments import check_seconds


class Settings(TypedDict, total=False):
    """The arguments of an ``Evaluator``."""

    device: str
    home: str | os.PathLike[str] | None
    root: str | os.PathLike[str] | None
    timeout_s: float | None
    build_timeout_s: float | None
    forward_only: bool
    timed: bool
    baselines: Sequence[str]
    relaxed: bool
    refuse: Sequence[str]
    rules: Mapping[str, str] | None
    require_confinement: bool
    compat: bool
    preset: str | None
    tf32: str | None
    check: bool
    exhaustive: bool
    fresh: bool
    seed: str | None
    trials: int | None
    lanes: int | None
    executor: str
    address: str | None


class AsyncEvaluator:
    """Judges candidates without blocking the event loop; an asynchronous context manager.

    It is an ``Evaluator`` whose answers can be awaited. Several tasks, event loops and threads may
    use it at the same time.

    Args:
        settings: The arguments of an ``Evaluator``.

    Raises:
        UsageError: An argument is invalid; ``async with`` raises it.
        HarnessError: The device, its tools or the store is not available.
    """

    def __init__(self, **settings: Unpack[Settings]):
        self._settings = settings
        self._evaluator: Evaluator | None = None
        self._is_entered = self._is_left = False
        self._lock = threading.Lock()

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise UsageError("this evaluator was opened before: make another one for another `async with`")
        self._is_entered = True
        try:
            await asyncio.to_thread(self._open)
        except asyncio.CancelledError:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def device(self) -> str:
        """The device that judges: ``cpu`` or ``cuda:N``; ``cuda`` for several GPUs."""
        return self._opened.device

    @property
    def is_alive(self) -> bool:
        """True until the evaluator is closed or its judge's process ends."""
        return self._evaluator is not None and self._evaluator.is_alive

    @property
    def room(self) -> int:
        """Number of entries that keep all processors busy."""
        return self._opened.room

    async def evaluate(
        self,
        candidate: str | os.PathLike[str],
        problem: str | os.PathLike[str] | None = None,
        *,
        cases: Sequence[str] = (),
        constants: Mapping[str, Any] | None = None,
        tag: Any = None,
        every_case: bool = False,
        is_answer: bool = False,
        deadline_s: float | None = None,
    ) -> Answer:
        """Judges a candidate and returns the answer; the arguments are those of ``Entry``.

        If the task is cancelled, the judge drops the candidate and ends the processes that run it.

        Args:
            candidate: A solution, as in ``Entry``.
            problem: The problem to solve.
            cases: Names of cases.
            constants: Constants that make a custom case.
            tag: Any value.
            every_case: Whether empty ``cases`` mean every case that fits the device.
            is_answer: Whether the candidate is a model's whole answer.
            deadline_s: Seconds from now until the answer, including the wait for a lane.

        Raises:
            UsageError: An argument is invalid, or the problem or a case is unknown.
            AnswerError: A model's answer holds no complete code.
            ProblemError: The problem does not run.
            DeadlineExceeded: The deadline has passed.
            HarnessError: The judge's process has ended.
        """
        entry = Entry(candidate, problem, cases, constants or {}, tag, every_case=every_case, is_answer=is_answer)
        answer = await self.answer(entry, deadline_s=deadline_s)
        if answer.error is not None:
            raise answer.error
        return answer

    async def answer(self, entry: Entry, *, deadline_s: float | None = None) -> Answer:
        """Judges an entry; the answer holds the error of an invalid entry or a missed deadline.

        Raises:
            UsageError: ``deadline_s`` is invalid.
            HarnessError: The judge's process has ended.
        """
        check_seconds(deadline_s=deadline_s)
        try:
            async with asyncio.timeout(deadline_s):
                return await asyncio.wrap_future(await self._submitted(entry))
        except TimeoutError:
            return Answer(entry, (), DeadlineExceeded(f"no verdict within the deadline of {deadline_s:g} s"))

    async def _submitted(self, entry: Entry) -> Future[Answer]:
        """Submits an entry in a thread, since reading a long answer or a busy judge takes a moment."""
        submission = _Submission()
        try:
            return await asyncio.to_thread(submission.send, self._opened, entry)
        except asyncio.CancelledError:
            submission.give_up()
            raise

    async def stream(
        self,
        entries: Iterable[Entry] | AsyncIterable[Entry],
        *,
        ahead: int | None = None,
        deadline_s: float | None = None,
    ) -> AsyncIterator[Answer]:
        """Judges candidates and yields each answer as soon as it is ready, in any order.

        If ``entries`` raises an exception, the stream first yields the answers to the earlier
        entries. If the program leaves the stream early, the judge drops what is not finished; use
        ``contextlib.aclosing`` to have that happen at once.

        Args:
            entries: The entries to judge. The stream reads them as there is room, so the iterable
                may be endless.
            ahead: Number of further entries to read before the first one is answered. Use 0 if the
                next entry depends on each answer. The default keeps all processors busy.
            deadline_s: Seconds from when an entry is read until its answer.

        Raises:
            UsageError: ``ahead`` is not a whole number of 0 or more, or ``deadline_s`` is invalid.
            HarnessError: The judge's process has ended.
        """
        check_seconds(deadline_s=deadline_s)
        if ahead is not None and not (isinstance(ahead, int) and ahead >= 0):
            raise UsageError(f"ahead must be a whole number of 0 or more, not {ahead!r}")
        room = self.room if ahead is None else 1 + ahead
        coming = _each(entries)
        pending: set[asyncio.Task[Answer]] = set()
        reading: asyncio.Task[Entry | _End] | None = None
        is_over, failure = False, None
        try:
            while True:
                if reading is None and not is_over and len(pending) < room:
                    reading = asyncio.ensure_future(_next(coming))
                if reading is None and not pending:
                    break
                watched = pending if reading is None else {*pending, reading}
                await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                if reading is not None and reading.done():
                    entry: Entry | _End = _End.END
                    try:
                        entry = reading.result()
                    except Exception as error:
                        failure = error
                    reading, is_over = None, entry is _End.END
                    if entry is not _End.END:
                        pending.add(asyncio.ensure_future(self.answer(entry, deadline_s=deadline_s)))
                for done in [task for task in pending if task.done()]:
                    pending.discard(done)
                    yield done.result()
        finally:
            for task in (*pending, *([reading] if reading is not None else [])):
                task.cancel()
            await asyncio.gather(*pending, *([reading] if reading is not None else []), return_exceptions=True)
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Ends the judge and all its processes. Finished records are in the store."""
        with self._lock:
            self._is_left = True
            evaluator, self._evaluator = self._evaluator, None
        if evaluator is not None:
            own = ThreadPoolExecutor(1)  # all threads of the loop may wait for the judge
            try:
                await asyncio.shield(asyncio.get_running_loop().run_in_executor(own, evaluator.close))
            finally:
                own.shutdown(wait=False)

    @property
    def _opened(self) -> Evaluator:
        if self._evaluator is None:
            raise HarnessError("this evaluator is not open: use it within `async with`")
        return self._evaluator

    def _open(self) -> None:
        """Opens the evaluator in a thread; closes it again if nobody waits for it any more."""
        evaluator = Evaluator(**self._settings)
        with self._lock:
            if not self._is_left:
                self._evaluator = evaluator
                return
        evaluator.close()


class _End(enum.Enum):
    """Stands for the end of the entries; None may be a program's wrong entry."""

    END = enum.auto()


class _Submission:
    """An entry on its way to the judge, withdrawn if its task is cancelled meanwhile, even if the loop has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._future: Future[Answer] | None = None
        self._is_given_up = False

    def send(self, evaluator: Evaluator, entry: Entry) -> Future[Answer]:
        """Submits the entry, in a thread."""
        future = evaluator.submit(entry)
        with self._lock:
            self._future, is_given_up = future, self._is_given_up
        if is_given_up:
            future.cancel()
        return future

    def give_up(self) -> None:
        """Withdraws the entry, now or as soon as it is submitted."""
        with self._lock:
            future, self._is_given_up = self._future, True
        if future is not None:
            future.cancel()


async def _each(entries: Iterable[Entry] | AsyncIterable[Entry]) -> AsyncIterator[Entry]:
    if isinstance(entries, AsyncIterable):
        async for entry in entries:
            yield entry
    else:
        for entry in entries:
            yield entry


async def _next(coming: AsyncIterator[Entry]) -> Entry | _End:
    return await anext(coming, _End.END)
