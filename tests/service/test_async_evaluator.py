"""Tests ``AsyncEvaluator``: answers, deadlines, cancellation that ends processes, threads, and texts from models."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import harness
from benchmarks.kills import HONEST, PROBLEM, WRONG
from harness import (
    Answer,
    AnswerError,
    AsyncEvaluator,
    DeadlineExceeded,
    Entry,
    HarnessError,
    ProblemError,
    Status,
    UsageError,
)
from harness.rewards import NO_KERNEL, reward

#: Does not end before the timeout of this evaluator, and uses a processor meanwhile.
SPINNING = HONEST.replace("return x.tanh()", "while True:\n            pass")
#: Waiting for a condition that always comes; a busy machine is slow.
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def evaluator(home: Path) -> Iterator[AsyncEvaluator]:
    opened = AsyncEvaluator(device="cpu", home=home, timeout_s=600)
    asyncio.run(opened.__aenter__())
    yield opened
    asyncio.run(opened.close())


def fenced(code: str) -> str:
    return f"I use tanh.\n\n```python\n{code}```\n\nThat is all.\n"


def descendants(besides: Collection[int] = ()) -> dict[int, float]:
    """Living processes below this one, and the seconds that each has used; none of some others and of what is below."""
    parents, used = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if fields[0] == "Z":
                continue
            parents[int(folder.name)] = int(fields[1])
            used[int(folder.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found: set[int] = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in found} - found - set(besides):
        found |= more
    return {one: used[one] for one in found - {os.getpid()}}


def test_texts_of_problems_and_answers_are_judged(evaluator: AsyncEvaluator) -> None:
    async def judged() -> list[Answer]:
        return await asyncio.gather(
            evaluator.evaluate(HONEST + "# async\n", PROBLEM, cases=["small"], tag=1),
            evaluator.evaluate(fenced(WRONG), PROBLEM, cases=["small"], is_answer=True, tag=2),
        )

    right, wrong = asyncio.run(judged())
    assert (right.entry.tag, right.has_passed) == (1, True)
    assert [record.status for record in wrong.records] == [Status.WRONG_OUTPUT]
    (record,) = right.records
    assert Path(record.problem_path).read_text() == PROBLEM
    assert record.problem == Path(record.problem_path).stem


@pytest.mark.parametrize(
    ("entry", "error", "words"),
    [
        (Entry(HONEST, PROBLEM, ["smal"]), UsageError, "no case 'smal'"),
        (Entry("I cannot help with that.", PROBLEM, is_answer=True), AnswerError, "no code fence"),
        (Entry(fenced(HONEST)[:-40], PROBLEM, is_answer=True), AnswerError, "never closes"),
        (Entry(HONEST, "raise SystemExit\n", ["small"]), ProblemError, "Model"),
        (Entry(HONEST, "\ud800\n"), UsageError, "surrogate"),
        (Entry(HONEST, PROBLEM, is_answer="yes"), UsageError, "is_answer must be True or False"),  # type: ignore[arg-type]
        ("code", UsageError, "not an Entry"),
    ],
)
def test_a_bad_entry_is_an_error_of_its_answer(
    evaluator: AsyncEvaluator, entry: Any, error: type[Exception], words: str
) -> None:
    answer = asyncio.run(evaluator.answer(entry))
    assert type(answer.error) is error
    assert words in str(answer.error)
    assert reward(answer) == (NO_KERNEL if error is AnswerError else None)


def test_a_bad_question_is_raised(evaluator: AsyncEvaluator) -> None:
    for bad in (0, -1, float("nan"), True, "1"):
        with pytest.raises(UsageError, match="deadline_s must be a positive number"):
            asyncio.run(evaluator.evaluate(HONEST, PROBLEM, deadline_s=bad))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no case"):
        asyncio.run(evaluator.evaluate(HONEST, PROBLEM, cases=["smal"]))
    with pytest.raises(HarnessError, match="not open"):
        asyncio.run(AsyncEvaluator(device="cpu").evaluate(HONEST, PROBLEM))


def test_a_stream_gives_every_answer_and_then_the_error_of_its_source(evaluator: AsyncEvaluator) -> None:
    async def entries() -> AsyncIterator[Entry]:
        yield Entry(HONEST + "# stream\n", PROBLEM, ["small"], tag="right")
        yield Entry(HONEST, PROBLEM, ["smal"], tag="bad")
        yield None  # type: ignore[misc]  # a program's slip is no end
        await asyncio.sleep(0)
        yield Entry(WRONG + "# stream\n", PROBLEM, ["small"], tag="wrong")
        raise LookupError("the source broke")

    found: dict[str, Answer] = {}

    async def read() -> None:
        async for answer in evaluator.stream(entries()):
            found["none" if answer.entry is None else answer.entry.tag] = answer

    with pytest.raises(LookupError, match="the source broke"):
        asyncio.run(read())
    assert found["right"].has_passed
    assert isinstance(found["bad"].error, UsageError)
    assert isinstance(found["none"].error, UsageError)
    assert found["wrong"].records[0].status is Status.WRONG_OUTPUT

    async def left() -> Answer:
        async with contextlib.aclosing(evaluator.stream([found["right"].entry] * 3, ahead=0)) as stream:
            return await anext(stream)

    assert asyncio.run(left()).has_passed
    with pytest.raises(UsageError, match="ahead"):
        asyncio.run(anext(evaluator.stream([], ahead=-1)))


def test_cancellation_ends_the_candidate_s_processes(evaluator: AsyncEvaluator) -> None:
    async def spun() -> int:
        # The judge has started, and from now on only a candidate takes so long.
        assert (await evaluator.evaluate(HONEST + "# before\n", PROBLEM, cases=["small"])).has_passed
        idle = descendants()
        task = asyncio.ensure_future(evaluator.evaluate(SPINNING, PROBLEM, cases=["small"]))
        end = time.monotonic() + LIMIT_S
        spinning: list[int] = []
        while not spinning:
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
            spinning = [one for one, used in descendants().items() if used - idle.get(one, 0) > 2]
        waiting = asyncio.ensure_future(evaluator.evaluate(HONEST + "# waits\n", PROBLEM, cases=["small"]))
        await asyncio.sleep(0)
        waiting.cancel()
        task.cancel()
        for one in (task, waiting):
            with pytest.raises(asyncio.CancelledError):
                await one
        after = await evaluator.evaluate(HONEST + "# after\n", PROBLEM, cases=["small"])
        assert after.has_passed
        return spinning[0]

    assert asyncio.run(spun()) not in descendants()


def test_a_missed_deadline_is_no_failure_of_the_candidate(evaluator: AsyncEvaluator) -> None:
    async def judged() -> list[Answer]:
        late = evaluator.answer(Entry(SPINNING + "# late\n", PROBLEM, ["small"]), deadline_s=1e-3)
        in_time = evaluator.answer(Entry(HONEST + "# in time\n", PROBLEM, ["small"]), deadline_s=LIMIT_S)
        return await asyncio.gather(late, in_time)

    late, in_time = asyncio.run(judged())
    assert isinstance(late.error, DeadlineExceeded)
    assert reward(late) is None
    assert in_time.has_passed
    with pytest.raises(DeadlineExceeded, match=r"within the deadline of 0\.001 s"):
        asyncio.run(evaluator.evaluate(SPINNING, PROBLEM, cases=["small"], deadline_s=1e-3))


def test_what_is_submitted_after_its_loop_has_ended_is_withdrawn(
    evaluator: AsyncEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert evaluator._evaluator is not None
    submit, may_go_on = evaluator._evaluator.submit, threading.Event()

    def slowly(entry: Entry) -> Any:
        if "# left" in str(entry.candidate):
            may_go_on.wait(LIMIT_S)
        return submit(entry)

    async def left() -> None:
        task = asyncio.ensure_future(evaluator.evaluate(SPINNING + "# left\n", PROBLEM, cases=["small"]))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        may_go_on.set()  # the end of the loop waits for the thread

    monkeypatch.setattr(evaluator._evaluator, "submit", slowly)
    asyncio.run(left())

    async def after() -> Answer:
        return await asyncio.wait_for(evaluator.evaluate(HONEST + "# after\n", PROBLEM, cases=["small"]), LIMIT_S)

    assert asyncio.run(after()).has_passed


def test_threads_share_an_evaluator(evaluator: AsyncEvaluator) -> None:
    def asked(number: int) -> bool:
        text = (WRONG if number % 2 else HONEST) + f"# thread {number}\n"
        return asyncio.run(evaluator.evaluate(text, PROBLEM, cases=["small"])).has_passed

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(asked, range(4))) == [True, False, True, False]


def test_an_end_leaves_no_process_and_no_waiting_task(home: Path) -> None:
    before = set(descendants())  # below them another evaluator may start a lane anew

    async def ended() -> None:
        async with AsyncEvaluator(device="cpu", home=home) as evaluator:
            task = asyncio.ensure_future(evaluator.evaluate(SPINNING + "# end\n", PROBLEM, cases=["small"]))
            await asyncio.sleep(0)
        with pytest.raises(HarnessError, match="closed"):
            await task
        opening = asyncio.ensure_future(AsyncEvaluator(device="cpu", home=home).__aenter__())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(ended())
    end = time.monotonic() + LIMIT_S
    while descendants(besides=before):
        assert time.monotonic() < end, "processes are left"
        time.sleep(0.1)


def test_a_judge_that_reads_no_more_holds_up_neither_deadlines_nor_the_end(home: Path) -> None:
    """So many large texts that the pipe to the judge is full, and all threads of the loop wait."""

    async def asked() -> list[Answer]:
        async with AsyncEvaluator(device="cpu", home=home) as evaluator:
            assert evaluator._evaluator is not None
            os.kill(evaluator._evaluator._process.pid, signal.SIGSTOP)
            try:
                entries = [Entry(HONEST + f"# {number:0300000}\n", PROBLEM, ["small"]) for number in range(60)]
                return await asyncio.gather(*(evaluator.answer(entry, deadline_s=1) for entry in entries))
            finally:
                os.kill(evaluator._evaluator._process.pid, signal.SIGCONT)

    answers = asyncio.run(asyncio.wait_for(asked(), LIMIT_S))
    assert {type(answer.error) for answer in answers} == {DeadlineExceeded}


def test_an_evaluator_is_opened_once(evaluator: AsyncEvaluator) -> None:
    async def opened_again() -> None:
        async with evaluator:
            pass

    with pytest.raises(UsageError, match="was opened before"):
        asyncio.run(opened_again())
    assert evaluator.is_alive


def test_a_wrong_setting_is_raised_when_it_opens() -> None:
    async def opened() -> None:
        async with AsyncEvaluator(device="gpu"):
            pass

    with pytest.raises(UsageError, match="gpu"):
        asyncio.run(opened())


def test_the_package_exports_what_a_program_needs() -> None:
    for name in harness.__all__:
        assert getattr(harness, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Judge'"):
        _ = harness.Judge  # type: ignore[attr-defined]
