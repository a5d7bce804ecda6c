"""The pump: takes requests from the queue, has them judged, and keeps what came of them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from harness.async_evaluator import AsyncEvaluator, Settings
from harness.entries import Answer
from harness.errors import AnswerError, DeadlineExceeded, HarnessError, ProblemError, SolutionError, UsageError
from harness.executors.result_cache import is_final
from harness.records.queue import EvaluationQueue, QueuedEvaluation, State
from harness.records.record import Status
from harness.rewards import reward
from harness.server.requests import entry_of
from harness.system.text import one_line

Found = TypeVar("Found")
#: Times that a request is judged again if the device or the harness may be at fault.
MOST_RETRIES = 2
#: Seconds between looks for requests whose deadline has passed in the queue.
TICK_S = 0.5
#: Longest wait in seconds before a judge that has ended starts again.
LONGEST_PAUSE_S = 60.0
_STAGES = (
    (AnswerError, "answer"),
    (ProblemError, "problem"),
    (SolutionError, "request"),
    (UsageError, "request"),
    (DeadlineExceeded, "deadline"),
)


class Pump:
    """Moves requests from the queue to the judge, and results back.

    Args:
        home: ``HARNESS_HOME``.
        settings: The judge's settings.

    Attributes:
        verdicts: Verdicts since the start, by status.
        counters: Events since the start: ``retries``, ``restarts`` of the judge, ``judged`` requests.
        seconds: Seconds in which requests were running, summed over all of them.
        device: The judge's device; empty before it has started.
        is_ready: Whether the judge runs.
    """

    def __init__(self, home: Path, settings: Settings):
        self._home = home
        self._settings = settings
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="queue")
        self._queue: EvaluationQueue | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ended: dict[str, asyncio.Event] = {}
        self._wake = asyncio.Event()
        self.verdicts: Counter[str] = Counter()
        self.counters: Counter[str] = Counter()
        self.seconds = 0.0
        self.device = ""
        self.is_ready = False

    async def open(self) -> int:
        """Opens the queue and returns how many requests a killed server had begun.

        Raises:
            StoreError: The store cannot be opened.
        """

        def opened() -> int:
            self._queue = EvaluationQueue(self._home)
            return self._queue.recover()

        return await asyncio.get_running_loop().run_in_executor(self._thread, opened)

    async def call(self, work: Callable[[EvaluationQueue], Found]) -> Found:
        """Works with the queue in its own thread, so that a slow disk does not stop the server."""

        def called() -> Found:
            assert self._queue is not None
            return work(self._queue)

        return await asyncio.get_running_loop().run_in_executor(self._thread, called)

    def wake(self) -> None:
        """Tells the pump that requests have arrived."""
        self._wake.set()

    async def find(self, client: str, id: str, wait_s: float = 0.0) -> QueuedEvaluation | None:
        """Returns a client's request; waits up to ``wait_s`` seconds for its end."""
        ended = self._ended.setdefault(id, asyncio.Event()) if wait_s else asyncio.Event()
        row = await self.call(lambda queue: queue.find_evaluation(client, id))
        if row is None or not row.is_open:
            self._tell(id)
        elif wait_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await ended.wait()
            row = await self.call(lambda queue: queue.find_evaluation(client, id))
        return row

    def stop(self, id: str) -> None:
        """Ends the judging of a cancelled request."""
        if (task := self._running.get(id)) is not None:
            task.cancel()
        self._tell(id)

    async def run(self, opened: asyncio.Future[None]) -> None:
        """Judges until the task is cancelled; starts the judge again whenever it ends.

        Args:
            opened: Gets a result when the judge runs for the first time, or its error.
        """
        pause_s = 1.0
        while True:
            began = time.monotonic()
            try:
                async with AsyncEvaluator(**self._settings) as evaluator:
                    self.device, self.is_ready = evaluator.device, True
                    if not opened.done():
                        opened.set_result(None)
                    await self._serve(evaluator)
            except HarnessError as error:
                if not opened.done():
                    opened.set_exception(error)
                    return
                print(f"the judge ended: {one_line(str(error))}; it starts again", file=sys.stderr, flush=True)
            finally:
                self.is_ready = False
                await self._end_all()
            self.counters["restarts"] += 1
            pause_s = 1.0 if time.monotonic() - began > LONGEST_PAUSE_S else min(2 * pause_s, LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Queues again what is running and closes the queue."""
        await self.call(lambda queue: queue.recover())
        await self.call(lambda queue: queue.close())
        self._thread.shutdown()

    async def _serve(self, evaluator: AsyncEvaluator) -> None:
        """Keeps the judge busy until it ends.

        Raises:
            HarnessError: The judge has ended, or the queue cannot be read or written.
        """
        # Where the disk was full as the last judge ended, its requests still count as running.
        await self.call(lambda queue: queue.recover())
        while True:
            self._wake.clear()
            for id in await self.call(lambda queue: queue.expire()):
                self._tell(id)
            free = evaluator.room - len(self._running)
            for row in await self.call(functools.partial(EvaluationQueue.take, most=free)) if free > 0 else ():
                if (earlier := self._running.get(row.id)) is not None:  # cancelled or given back a moment ago
                    await asyncio.wait([earlier])
                self._running[row.id] = asyncio.ensure_future(self._judge(evaluator, row))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):  # wait_for would lose a cancellation before Python 3.12
                    await self._wake.wait()
            for id, task in [*self._running.items()]:
                if task.done():
                    del self._running[id]
                    if not task.cancelled():
                        task.result()

    async def _judge(self, evaluator: AsyncEvaluator, row: QueuedEvaluation) -> None:
        """Judges a request and keeps the result.

        Raises:
            HarnessError: The judge has ended.
        """
        began = time.monotonic()
        deadline_s = None if row.deadline_at is None else max(row.deadline_at - time.time(), 1e-3)
        try:
            entry = entry_of(row.request)
            await self._keep(row, await evaluator.answer(entry, deadline_s=deadline_s))
        except (OSError, ValueError, SyntaxError, RecursionError) as error:  # the problem's file is another one by now
            await self._end(row, State.FAILED, stage="problem", error=f"the problem cannot be read any more: {error}")
        except HarnessError as error:
            if row.attempts < MOST_RETRIES:
                await self.call(lambda queue: queue.give_back(row.id))
            else:
                await self._end(row, State.FAILED, stage="harness", error=str(error))
            raise
        finally:
            self.counters["judged"] += 1
            self.seconds += time.monotonic() - began
            self._wake.set()

    async def _keep(self, row: QueuedEvaluation, answer: Answer) -> None:
        """Keeps an answer, or queues its request again if the machine may be at fault."""
        error = answer.error
        stage = "" if error is None else next((name for kind, name in _STAGES if isinstance(error, kind)), "harness")
        is_fault = stage == "harness" or not all(map(is_final, answer.records))
        # Of a pass only the speed is missing, often because memory is too small for timing: that ends so again.
        is_pass = not stage and all(record.status is Status.PASSED for record in answer.records)
        if is_fault and row.attempts < (1 if is_pass else MOST_RETRIES):
            self.counters["retries"] += 1
            await self.call(lambda queue: queue.give_back(row.id))
            return
        states = {"": State.FINISHED, "deadline": State.EXPIRED}
        names = [record.record for record in answer.records]
        state = states.get(stage, State.FAILED)
        await self._end(row, state, records=names, reward=reward(answer), stage=stage, error=str(error or ""))
        for record in answer.records:
            self.verdicts[record.status] += 1

    async def _end(self, row: QueuedEvaluation, state: State, **result: Any) -> None:
        await self.call(lambda queue: queue.finish(row.id, state, **result))
        self._tell(row.id)

    def _tell(self, id: str) -> None:
        if (event := self._ended.pop(id, None)) is not None:
            event.set()

    async def _end_all(self) -> None:
        """Ends all tasks; their requests are queued again."""
        tasks, self._running = [*self._running.values()], {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(HarnessError, sqlite3.Error):
            await self.call(lambda queue: queue.recover())
