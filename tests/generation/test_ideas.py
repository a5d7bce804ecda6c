"""Tests what a new branch is told about the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.generation.attempts import Attempt, Kind, Outcome
from harness.generation.ideas import MAX_IDEA_CHARACTERS, idea_of
from harness.generation.strategies import MOST_IDEAS, BestOfN, Move, TreeSearch
from harness.records.record import Status
from tests.generation.kernels import RIGHT
from tests.generation.test_rewards import failed, passed

CODE = "```python\nclass ModelNew: pass\n```\nIt is fast."


def attempt(number: int, source: str = "x", parent: int | None = None, *, speed: float | None = None) -> Attempt:
    record = failed(Status.WRONG_OUTPUT) if speed is None else passed(speed)
    kind = Kind.WRITE if parent is None else Kind.REPAIR
    return Attempt(number, kind, parent, "m", "", Outcome.JUDGED, source=source, records=(record,))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (f"One block per row.\n\n{CODE}", "One block per row."),
        (f"<think>Two rows? ```python\nx\n```</think>\nOne block per row.\n{CODE}", "One block per row."),
        (CODE, ""),
        ("class ModelNew: pass", ""),
        ("no code at all", ""),
        ("", ""),
    ],
)
def test_an_idea_is_the_prose_before_the_code(answer: str, words: str) -> None:
    assert idea_of(attempt(1), answer).words == words
    assert len(idea_of(attempt(1), "long " * 10_000 + f"\n{CODE}").words) <= MAX_IDEA_CHARACTERS + 10


def test_techniques_and_results_are_named() -> None:
    source = "__shared__ float4 row[8]; value += __shfl_xor_sync(~0u, value, 1); atomicAdd(out, value);"
    told = idea_of(attempt(1, source, speed=2.0), "")
    assert told.techniques == "shared memory, vector loads, warp shuffles, atomics"
    assert told.result == "PASSED, at least 2.00x"
    assert idea_of(attempt(1, "return x + 1"), "").techniques == ""
    assert "shared memory" not in idea_of(attempt(1, RIGHT), "").techniques


def told(history: list[Attempt]) -> tuple[int, ...]:
    """What a tree that begins a new branch tells it."""
    rewrites = [Attempt(100 + one, Kind.REWRITE, 1, "m", "", Outcome.NO_CODE) for one in range(9)]
    move = TreeSearch(most_repairs=0, most_edits=0).next([*history, *rewrites])
    assert move is not None
    assert move.kind is Kind.WRITE
    return move.unlike


def test_a_new_branch_hears_the_best_of_each_branch() -> None:
    history = [attempt(1), attempt(2, parent=1, speed=1.5), attempt(3, parent=2, speed=1.2), attempt(4, speed=3.0)]
    history += [attempt(5, parent=4), replace(attempt(6, parent=5), outcome=Outcome.DUPLICATE, records=())]
    assert told(history) == (4, 2)
    assert told([*history, replace(attempt(7), outcome=Outcome.NO_CODE, source="", records=())]) == (4, 2)
    many = [attempt(number) for number in range(1, 20)]
    assert len(told(many)) == MOST_IDEAS
    assert TreeSearch().next([]) == BestOfN().next(history) == Move(Kind.WRITE)
