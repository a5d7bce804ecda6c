"""Tests what the strategies ask next."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.answer_pool import Member, read_pool
from benchmarks.strategies import simulated, tasks_of
from harness.errors import UsageError
from harness.generation.attempts import Attempt, Gate, Kind, Outcome
from harness.generation.strategies import (
    BestOfN,
    Move,
    Refinement,
    Strategy,
    TreeSearch,
    branches_of,
    choose_proposer,
    strategies,
)
from harness.records.record import EvaluationRecord, Status
from tests.generation.test_rewards import BLANK, failed, passed

REPOSITORY = Path(__file__).resolve().parents[2]


def history(strategy: Strategy, *results: EvaluationRecord | Outcome | None) -> list[Attempt]:
    """What a strategy asks if its turns end like this; None for one that is open."""
    attempts: list[Attempt] = []
    for number, result in enumerate(results, start=1):
        move = strategy.next(attempts)
        assert move is not None
        attempt = Attempt(number, move.kind, move.parent, "m", "")
        if isinstance(result, Outcome):
            attempt = replace(attempt, outcome=result)
        elif result is not None:
            attempt = replace(attempt, outcome=Outcome.JUDGED, records=(result,), source="x")
        attempts.append(attempt)
    return attempts


BUILD, WRONG = failed(Status.BUILD_ERROR), failed(Status.WRONG_OUTPUT)


@pytest.mark.parametrize("strategy", list(strategies()), ids=lambda one: one.name)
def test_a_turn_without_an_answer_is_asked_again(strategy: Strategy) -> None:
    for outcome in (Outcome.TIMED_OUT, Outcome.LOST, Outcome.REFUSED):
        assert strategy.next(history(strategy, outcome, outcome)) == Move(Kind.WRITE)
    before = history(strategy, WRONG)
    again = [*before, Attempt(2, Kind.REPAIR, 1, "m", "", Outcome.SERVER_ERROR)]
    assert strategy.next(again) == strategy.next(before)


def test_best_of_n_always_asks_anew() -> None:
    assert BestOfN().next(history(BestOfN(), WRONG, passed(2.0))) == Move(Kind.WRITE)


def test_refinement_repairs_the_last_and_improves_the_best() -> None:
    one = Refinement()
    assert one.next(history(one, BUILD)) == Move(Kind.REPAIR, 1)
    assert one.next(history(one, Outcome.NO_CODE)) == Move(Kind.REPAIR, 1)
    assert one.next(history(one, BUILD, passed(2.0), passed(1.5))) == Move(Kind.EDIT, 2)
    assert one.next(history(one, passed(2.0), WRONG)) == Move(Kind.REPAIR, 2)
    assert one.next(history(one, passed(2.0), Outcome.DUPLICATE)) == Move(Kind.EDIT, 1)
    assert one.next(history(one, None)) is None
    overfitted = replace(history(one, BLANK)[0], gate=Gate(False))
    assert one.next([overfitted]) == Move(Kind.WRITE)


def test_the_tree_repairs_first_and_gives_up_a_branch_that_leads_nowhere() -> None:
    one = TreeSearch()
    assert one.next(history(one, BUILD)) == Move(Kind.REPAIR, 1)
    assert one.next(history(one, BUILD, WRONG)) == Move(Kind.REPAIR, 2)  # it got further
    assert one.next(history(one, BUILD, BUILD)) == Move(Kind.WRITE, unlike=(1,))
    long = branches_of(history(one, *[BUILD] * 40))
    assert len(long) > 4
    assert max(len(branch) for branch in long) <= 7


def test_the_tree_doubts_repairs_of_what_does_not_build_once_one_has_failed() -> None:
    one = TreeSearch()
    for result, repairs in ((BUILD, 2), (WRONG, 4)):
        kinds = [attempt.kind for attempt in history(one, *[result] * 8)]
        assert kinds[:3] == [Kind.WRITE, Kind.REPAIR, Kind.WRITE]
        assert kinds.count(Kind.REPAIR) == repairs


def test_the_tree_repairs_more_patiently_once_something_has_passed() -> None:
    one = TreeSearch()
    found = history(one, passed(2.0), BUILD, passed(1.9), BUILD, BUILD)
    assert [(attempt.kind, attempt.parent) for attempt in found[1:]] == [
        (Kind.REWRITE, 1),
        (Kind.EDIT, 1),
        (Kind.REPAIR, 2),
        (Kind.REPAIR, 4),
    ]


def test_the_tree_begins_branches_and_edits_what_passed() -> None:
    one = TreeSearch()
    slow = [passed(2.0), *[passed(1.1)] * 4]
    moves = [(attempt.kind, attempt.parent) for attempt in history(one, *slow)]
    assert moves == [(Kind.WRITE, None), (Kind.REWRITE, 1), (Kind.EDIT, 1), (Kind.WRITE, None), (Kind.REWRITE, 1)]
    fast = history(one, passed(2.0), passed(1.1), passed(4.0), WRONG)
    assert (fast[3].kind, fast[3].parent) == (Kind.EDIT, 3)  # an edit that gained is followed by another


def test_a_new_branch_is_told_the_best_attempt_of_each_technique() -> None:
    one = TreeSearch()
    found = history(one, passed(2.0), passed(1.5), passed(1.1))
    for techniques, unlike in (
        (("", "", ""), (1, 2, 3)),
        (("__shared__", "__shared__", "atomicAdd("), (1, 3)),
        (("__shared__", "__shared__ atomicAdd(", "atomicAdd("), (1, 2, 3)),
    ):
        marked = [replace(attempt, source=f"x {text}") for attempt, text in zip(found, techniques, strict=True)]
        branch = [replace(attempt, parent=None, kind=Kind.WRITE) for attempt in marked]
        edits = [Attempt(number, Kind.EDIT, 1, "m", "", Outcome.DUPLICATE) for number in (4, 5, 9)]
        rewritten = Attempt(6, Kind.REWRITE, 1, "m", "", Outcome.DUPLICATE)
        move = one.next([*branch, *edits, rewritten, replace(rewritten, number=7), replace(rewritten, number=8)])
        assert move == Move(Kind.WRITE, unlike=unlike)


def test_the_tree_has_several_turns_open() -> None:
    one = TreeSearch()
    assert [attempt.parent for attempt in history(one, None, None, None)] == [None] * 3
    assert one.next(history(one, WRONG, None)) == Move(Kind.WRITE, unlike=(1,))  # the repair is under way


def test_the_tree_leaves_an_overfitted_attempt_alone() -> None:
    one = TreeSearch()
    overfitted = replace(history(one, BLANK)[0], gate=Gate(False))
    assert one.next([overfitted]) == Move(Kind.WRITE)


def test_of_several_models_the_better_is_asked_more_often() -> None:
    def asked(*results: tuple[str, EvaluationRecord | Outcome | None]) -> list[Attempt]:
        strategy = BestOfN()
        plain = history(strategy, *(result for _, result in results))
        return [replace(one, proposer=name) for one, (name, _) in zip(plain, results, strict=True)]

    assert choose_proposer(["a", "b"], []) == "a"
    assert choose_proposer(["a", "b"], asked(("a", None))) == "b"  # also while the first is at work
    assert choose_proposer(["a", "b"], asked(("a", passed(2.0)), ("b", WRONG))) == "a"
    assert choose_proposer(["a", "b"], asked(("a", Outcome.TIMED_OUT), ("b", WRONG))) == "b"
    assert choose_proposer(["b"], asked(("a", passed(2.0)), ("b", WRONG))) == "b"
    attempts: list[Attempt] = []
    for _ in range(200):
        name = choose_proposer(["weak", "good"], attempts)
        attempts = asked(
            *((one.proposer, one.records[0]) for one in attempts), (name, passed(1.4 if name == "good" else 1.0))
        )
    counts = Counter(one.proposer for one in attempts)
    assert counts["good"] > 2 * counts["weak"] > 10  # and none is given up


def pool(speeds: bool = True) -> list[Member]:
    """Three structures: the longer, the faster, and the more often wrong."""
    made = []
    for structure, lines, speed in (("short", 100, 0.5), ("middle", 400, 1.0), ("long", 1000, 4.0)):
        one = Member("p", structure, {}, lines=lines, status="PASSED")
        for step in range(4):
            made.append(replace(one, setting={"step": step}, speedup=speed * (4 + step) / 8 if speeds else None))
        made += [
            replace(made[-1], defect=status, status=status, speedup=None) for status in ("BUILD_ERROR", "WRONG_OUTPUT")
        ]
    return made


def test_in_the_simulation_the_default_finds_the_fastest_structure_most_often() -> None:
    (task,) = tasks_of(pool())
    tree, *others = [
        statistics.fmean(simulated(task, strategy, 20, seed)[0] for seed in range(2000, 2200))
        for strategy in strategies()
    ]
    assert tree > max(others)
    assert simulated(task, TreeSearch(), 20, 1) == simulated(task, TreeSearch(), 20, 1)


def test_in_the_simulation_first_answers_pass_as_often_as_was_measured() -> None:
    for right, spread in ((0.49, 1.0), (0.49, 0.0), (0.2, 1.0)):
        (task,) = tasks_of(pool(speeds=False), right, 0.5, spread)
        runs = [simulated(task, BestOfN(), 1, seed) for seed in range(2000)]
        assert statistics.fmean(first == 1 for _, first in runs) == pytest.approx(right, abs=0.04)
        assert {speed for speed, _ in runs} == {0.0}


def test_a_pool_without_verdicts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lacks right, wrong or broken answers"):
        tasks_of([replace(one, status=None) for one in pool()])
    for text in ("", "[]", '{"members": [{"problem": "p"}]}'):
        (tmp_path / "pool.json").write_text(text)
        with pytest.raises(UsageError, match="is no pool"):
            read_pool(tmp_path / "pool.json")


def test_the_pool_of_the_repository_can_be_replayed() -> None:
    tasks = tasks_of(read_pool(REPOSITORY / "benchmarks" / "answer_pool.json"))
    assert len(tasks) == 4
    assert all(simulated(task, TreeSearch(), 20, 1)[1] <= 21 for task in tasks)
