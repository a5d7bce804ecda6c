"""Tests what the strategies ask next."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace

import pytest

from benchmarks.strategies import TASKS, Task, simulated
from harness.generation.attempts import Attempt, Gate, Kind, Outcome
from harness.generation.strategies import BestOfN, Move, Refinement, Strategy, TreeSearch, choose_proposer, strategies
from harness.records.record import EvaluationRecord, Status
from tests.generation.test_rewards import BLANK, failed, passed


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
    assert one.next(history(one, BUILD, WRONG)) == Move(Kind.REPAIR, 2)
    long = history(one, *[BUILD] * 30)
    assert sum(attempt.parent is None for attempt in long) > 2
    assert max(sum(child.parent == attempt.number for child in long) for attempt in long) <= 6


def test_the_tree_edits_and_rewrites_what_passed_in_turn() -> None:
    one = TreeSearch()
    moves = [(attempt.kind, attempt.parent) for attempt in history(one, passed(2.0), passed(1.1), passed(1.1))]
    assert moves == [(Kind.WRITE, None), (Kind.EDIT, 1), (Kind.REWRITE, 1)]
    found = history(one, passed(1.2), passed(4.0), WRONG)
    assert (found[2].kind, found[2].parent) == (Kind.EDIT, 2)


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


@pytest.mark.parametrize("task", TASKS[2:], ids=lambda task: task.name)
def test_in_the_simulation_the_default_does_best_on_hard_problems(task: Task) -> None:
    tree, *others = [
        statistics.median(simulated(task, strategy, 20, seed)[0] for seed in range(2000, 2100))
        for strategy in strategies()
    ]
    assert tree > max(others)
    assert simulated(task, TreeSearch(), 20, 1) == simulated(task, TreeSearch(), 20, 1)
