"""Tests the search with a judge that is given: what is asked, what a result means, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from harness.errors import HarnessError, ProblemError
from harness.evaluator import Answer, Entry
from harness.records.record import EvaluationRecord, PrecisionClass, Status
from harness.rendering.stamp import parse_stamp
from harness.tuning.results import Trial
from harness.tuning.search import Limits, Question, Search
from harness.tuning.space import Point
from harness.tuning.strategies import make_strategy
from harness.tuning.template import Searched, searched

QUESTION = Question("tanh")
ENDLESS = Limits(None, None)


class FakeJudge:
    """Answers as an evaluator would, with a few requests open at the same time."""

    def __init__(self, room: int = 3, *, fails: HarnessError | None = None, stored: bool = False):
        self.room, self.fails, self.stored = room, fails, stored
        self.asked: list[Entry] = []

    def stream(self, entries: Iterable[Entry], ahead: int | None = None) -> Iterator[Answer]:
        waiting: list[Entry] = []
        for entry in entries:
            self.asked.append(entry)
            waiting.append(entry)
            if len(waiting) >= self.room:
                yield self.answer(waiting.pop())  # the last one first
        yield from map(self.answer, waiting)

    def answer(self, entry: Entry) -> Answer:
        if self.fails is not None:
            return Answer(entry, (), self.fails)
        stamp = parse_stamp(str(entry.candidate))
        assert stamp is not None
        kind = stamp.parameters["kind"]
        status = {"right": Status.PASSED, "wrong": Status.WRONG_OUTPUT, "crash": Status.CRASHED}.get(
            str(kind), Status.BUILD_ERROR
        )
        time_ms = 1.0 + abs(float(stamp.parameters["width"]) - 16) + float(stamp.parameters["step"])
        record = EvaluationRecord(
            problem="tanh", solution=str(entry.name), case="small", device="cuda:0", status=status, message="why",
            seed="", digest="d", problem_digest="p", precision_class=PrecisionClass.FP32,
            created_at="2025-02-02" if self.stored else "2026-02-02",
            speedup={"forward": 1 / time_ms} if status is Status.PASSED else None,
        )  # fmt: skip
        return Answer(entry, (record,))


def search(found: Searched, strategy: str, limits: Limits = ENDLESS, **first: Sequence[Point]) -> Search:
    return Search(found, make_strategy(strategy, found.space, 0), limits, "2026-01-01", **first)


@pytest.mark.parametrize("strategy", ["exhaustive", "random", "pattern"])
def test_every_kind_of_failure_is_a_data_point(make_project: Callable[..., Path], strategy: str) -> None:
    found = searched(make_project(), "tanh", {})
    judge, told = FakeJudge(), list[Trial]()
    run = search(found, strategy)
    run.run(judge, QUESTION, told.append)
    assert len(told) == len(run.trials) == found.space.size == 10 + 4 * 4
    statuses = {one.status for one in told}
    assert statuses == {"PASSED", "WRONG_OUTPUT", "CRASHED", "BUILD_ERROR", "NOT_RENDERED"}
    assert all((one.cost is not None) == one.has_passed for one in told)
    best = min((one for one in told if one.cost is not None), key=lambda one: one.cost or 0)
    assert (best.settings["width"], best.settings["step"]) == (16, 1)
    assert not any(one.is_stored for one in told)


def test_starts_come_first_and_the_budget_counts_them(make_project: Callable[..., Path]) -> None:
    found = searched(make_project(), "tanh", {})
    judge = FakeJudge()
    starts = [*found.first_points(), ("no", 1, 2, False), *found.first_points()]
    run = search(found, "random", Limits(5, None), starts=starts)
    run.run(judge, QUESTION, lambda _: None)
    assert [entry.name for entry in judge.asked[:2]] == ["tanh default", "tanh width=32"]
    assert len(run.trials) == 5
    assert len({entry.candidate for entry in judge.asked}) == len(judge.asked)


def test_settings_with_one_text_are_judged_once(make_project: Callable[..., Path]) -> None:
    solution = 'A = "{{ kind }} {{ idle }}"\nB = {{ step + width }}\n'
    found = searched(make_project(solution=solution), "tanh", {"kind": "right", "idle": "false"})
    for room in (1, 4):
        judge = FakeJudge(room)
        run = search(found, "exhaustive")
        run.run(judge, QUESTION, lambda _: None)
        assert len(judge.asked) + run.same == found.space.size == 10
        assert run.same == 0
    aliased = searched(make_project(solution=solution.replace("+", "*")), "tanh", {"kind": "right", "idle": "false"})
    judge = FakeJudge()
    run = search(aliased, "pattern")
    run.run(judge, QUESTION, lambda _: None)
    assert (len(judge.asked), run.same) == (6, 4)  # 8, 16, 24, 32, 48 and 64; the others share


def test_no_setting_begins_after_the_time_is_up(make_project: Callable[..., Path]) -> None:
    found = searched(make_project(), "tanh", {})
    judge = FakeJudge()
    run = search(found, "random", Limits(None, 1e-9))
    run.run(judge, QUESTION, lambda _: None)
    assert (judge.asked, run.is_out_of_time) == ([], True)


def test_a_problem_that_does_not_run_ends_the_search(make_project: Callable[..., Path]) -> None:
    found = searched(make_project(), "tanh", {})
    with pytest.raises(ProblemError, match="it does not run"):
        search(found, "random").run(FakeJudge(fails=ProblemError("it does not run")), QUESTION, lambda _: None)


@pytest.mark.parametrize("stored", [True, False])
def test_known_settings_come_next_as_long_as_the_store_answers(make_project: Callable[..., Path], stored: bool) -> None:
    found = searched(make_project(), "tanh", {"kind": "right"})
    points = [found.space.at(number) for number in range(found.space.size)]
    strategy = make_strategy("exhaustive", found.space, 0)
    run = Search(found, strategy, Limits(6, None), "2026-01-01", starts=points[:1], known=[*points[:0:-1]])
    judge = FakeJudge(room=1, stored=stored)
    run.run(judge, QUESTION, lambda _: None)
    asked = [entry.tag for entry in judge.asked]
    rest = points[:4:-1] if stored else [points[-1], *points[1:5]]
    assert asked == [points[0], *rest]
    assert all(one.is_stored == stored for one in run.trials)
