"""Tests the pump and its queue with a judge that faults on purpose: faults are judged again, then masked."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.entries import Answer, Entry
from harness.errors import DeviceError, HarnessError, StoreError
from harness.records.queue import EvaluationQueue, NewEvaluation, QueuedEvaluation, QuotaExceeded, State
from harness.records.record import EvaluationRecord, Status
from harness.server import pump as pumps
from harness.server.requests import Problems, evaluations
from tests.generation.test_rewards import failed, passed

PROBLEM = "import torch\n\nclass Model:\n    pass\n\ndef get_inputs(): ...\n\ndef get_init_inputs(): ...\n"
FAULT, RIGHT = failed(Status.HARNESS_ERROR, device="cpu"), passed(device="cpu")
WRONG = failed(Status.WRONG_OUTPUT, device="cpu")
#: A pass on a GPU whose speed was not measured.
UNTIMED = passed()


class Judge:
    """Stands in for ``AsyncEvaluator``: answers in the order of a script; an error ends it."""

    device, room = "cpu", 2

    def __init__(self, script: Iterator[EvaluationRecord | HarnessError], asked: list[str]):
        self._script, self._asked = script, asked

    async def __aenter__(self) -> Judge:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def answer(self, entry: Entry, *, deadline_s: float | None = None) -> Answer:
        self._asked.append(str(entry.candidate).strip())
        said = next(self._script)
        if isinstance(said, HarnessError):
            if isinstance(said, DeviceError):
                return Answer(entry, (), said)
            raise said
        return Answer(entry, (said,))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[QueuedEvaluation], list[str]]]:
    """Has evaluations judged by a script; returns their rows, and the texts in the order of their turns."""
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "p.py").write_text(PROBLEM)
    problems = Problems.of(tmp_path, tmp_path / "home", accepts=False)
    monkeypatch.setattr(pumps, "LONGEST_PAUSE_S", 0.01)

    def judged(
        script: Sequence[EvaluationRecord | HarnessError], *items: dict[str, Any]
    ) -> tuple[list[QueuedEvaluation], list[str]]:
        asked: list[str] = []
        left = iter(script)
        monkeypatch.setattr(pumps, "AsyncEvaluator", lambda **_: Judge(left, asked))

        async def ran() -> list[QueuedEvaluation]:
            pump = pumps.Pump(tmp_path / "home", {})
            await pump.open()
            wanted = evaluations([{"problem": "p", **item} for item in items], problems, "one", "")
            await pump.call(lambda queue: queue.put("one", wanted, 10))
            pumping = asyncio.ensure_future(pump.run(asyncio.get_running_loop().create_future()))
            rows = [await pump.find("one", one.id, 60.0) for one in wanted]
            pumping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pumping
            await pump.close()
            return [row for row in rows if row is not None]

        return asyncio.run(ran()), asked

    return judged


@pytest.mark.parametrize(
    ("script", "state", "reward", "attempts"),
    [
        ([FAULT, RIGHT], State.FINISHED, 0, 1),
        ([FAULT, FAULT, WRONG], State.FINISHED, -0.5, 2),
        ([FAULT, FAULT, FAULT], State.FINISHED, None, 2),
        ([DeviceError("lost"), RIGHT], State.FINISHED, 0, 1),
        ([DeviceError("lost")] * 3, State.FAILED, None, 2),
        ([HarnessError("the judge's process has ended"), RIGHT], State.FINISHED, 0, 1),
        ([HarnessError("the judge's process has ended")] * 3, State.FAILED, None, 2),
        ([WRONG], State.FINISHED, -0.5, 0),
        ([UNTIMED, UNTIMED], State.FINISHED, 0, 1),
        ([FAULT, UNTIMED], State.FINISHED, 0, 1),
    ],
)
def test_a_fault_is_judged_again_and_then_masked(
    run: Callable[..., Any], script: list[Any], state: State, reward: float | None, attempts: int
) -> None:
    (row,), asked = run(script, {"solution": "x"})
    assert (row.state, row.reward, row.attempts, len(asked)) == (state, reward, attempts, len(script))
    assert row.request == ""
    assert (row.stage == "harness") == (state == State.FAILED)


def test_what_a_full_disk_left_running_is_judged_once_the_judge_runs_again(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    recover, failures = EvaluationQueue.recover, iter([False, False, True])

    def full(queue: EvaluationQueue, *_: object) -> int:
        raise StoreError("the disk is full")

    monkeypatch.setattr(EvaluationQueue, "give_back", full)
    monkeypatch.setattr(EvaluationQueue, "recover", lambda queue: (full if next(failures, False) else recover)(queue))
    (row,), asked = run([HarnessError("the judge's process has ended"), RIGHT], {"solution": "x"})
    assert (row.state, asked) == (State.FINISHED, ["x", "x"])


def test_priorities_come_first_and_then_the_order(run: Callable[..., Any]) -> None:
    items = [{"solution": f"{number}", "priority": priority} for number, priority in enumerate((0, 5, -5, 5))]
    rows, asked = run([RIGHT] * 4, *items)
    assert asked == ["1", "3", "0", "2"]
    assert {row.state for row in rows} == {State.FINISHED}


def new(id: str, **more: Any) -> NewEvaluation:
    return dataclasses.replace(NewEvaluation(id=id, problem="p", request="{}"), **more)


def test_the_queue_keeps_what_has_ended_and_repeats_what_has_no_reward(tmp_path: Path) -> None:
    with EvaluationQueue(tmp_path) as queue:
        queue.put("one", [new("a"), new("b"), new("a")], 2)
        with pytest.raises(QuotaExceeded, match="would have 3 open evaluations; the server takes 2"):
            queue.put("one", [new("c")], 2)
        queue.put("other", [new("d")], 2)
        assert [row.id for row in queue.take(2)] == ["a", "b"]
        queue.finish("a", State.FINISHED, records=["r"], reward=0.5)
        assert not queue.cancel("other", "b")
        assert queue.cancel("one", "b")
        queue.finish("b", State.FINISHED, reward=1.0)  # too late: it is cancelled
        again = queue.put("one", [new("a"), new("b")], 2)
        assert [(row.state, row.reward) for row in again] == [(State.FINISHED, 0.5), (State.QUEUED, None)]
        queue.take(1)
    with EvaluationQueue(tmp_path) as queue:
        assert queue.recover() == 1
        assert queue.counts() == {
            "queued": 2, "running": 0, "finished": 1, "failed": 0, "expired": 0, "cancelled": 0,
        }  # fmt: skip
        queue.put("one", [new("e", deadline_at=1.0)], 9)
        assert queue.expire() == ["e"]
        late = queue.find_evaluation("one", "e")
        assert late is not None
        assert (late.state, late.stage, late.reward, late.may_repeat) == (State.EXPIRED, "deadline", None, True)
