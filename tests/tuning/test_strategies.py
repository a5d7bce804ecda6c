"""Tests the strategies: each setting once, whatever they are told, the same with a seed, better than chance."""

from __future__ import annotations

import importlib.util
import math
import random

import pytest

from benchmarks.tune_strategies import made_search
from harness.errors import UsageError
from harness.tuning.gaussian_process import GaussianProcess
from harness.tuning.simulation import median_evaluations, replays
from harness.tuning.space import Point, Space, listed_space
from harness.tuning.strategies import STRATEGIES, Deck, make_strategy

OPTUNA = {"tpe": "optuna", "cmaes": "cmaes", "nsga2": "optuna"}


def chosen(name: str, space: Space, seed: int = 0) -> object:
    """The strategy, if its package is there."""
    if name in OPTUNA and importlib.util.find_spec(OPTUNA[name]) is None:
        pytest.skip(f"{OPTUNA[name]} is not installed")
    return make_strategy(name, space, seed)


def small_space() -> Space:
    points = [(a, b, c) for a in (1, 2, 4, 8) for b in ("x", "y") for c in (False, True) if a < 8 or b == "x"]
    return listed_space(["a", "b", "c"], points)


def cost(point: Point) -> float | None:
    a, b, c = point
    if c and a == 4:
        return None
    return (abs(math.log2(float(a)) - 1) + 1) * (2 if b == "x" else 1)


def run(name: str, space: Space, seed: int, pending: int) -> list[Point]:
    """All settings that a strategy asks for, when so many are asked before the first one is told."""
    strategy, waiting, asked = chosen(name, space, seed), [], []
    while True:
        point = strategy.ask()  # type: ignore[attr-defined]
        if point is not None:
            asked.append(point)
            waiting.append(point)
        if not waiting:
            return asked
        if point is None or len(waiting) > pending:
            first = waiting.pop(0)
            strategy.tell(first, cost(first))  # type: ignore[attr-defined]


@pytest.mark.parametrize("pending", [0, 5])
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_setting_is_asked_once_and_a_seed_repeats_the_order(name: str, pending: int) -> None:
    space = small_space()
    asked = run(name, space, 3, pending)
    assert len(asked) == len(set(asked)) == space.size
    assert all(point in space for point in asked)
    assert run(name, space, 3, pending) == asked


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_a_strategy_is_told_it_does_not_ask(name: str) -> None:
    space = small_space()
    strategy = chosen(name, space)
    known = [space.at(number) for number in range(0, space.size, 2)]
    for point in known:
        strategy.tell(point, cost(point))  # type: ignore[attr-defined]
    asked = []
    while (point := strategy.ask()) is not None:  # type: ignore[attr-defined]
        asked.append(point)
        strategy.tell(point, cost(point))  # type: ignore[attr-defined]
    assert not set(asked) & set(known)
    assert len(asked) == space.size - len(known)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_survives_a_space_where_everything_fails(name: str) -> None:
    space = small_space()
    strategy = chosen(name, space)
    for _ in range(space.size):
        point = strategy.ask()  # type: ignore[attr-defined]
        assert point is not None
        strategy.tell(point, None)  # type: ignore[attr-defined]
    assert strategy.ask() is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_space_of_one_setting_is_asked_once(name: str) -> None:
    strategy = chosen(name, listed_space(["a"], [(1,)]))
    assert strategy.ask() == (1,)  # type: ignore[attr-defined]
    assert strategy.ask() is None  # type: ignore[attr-defined]


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no strategy 'patern'. Did you mean 'pattern'"):
        make_strategy("patern", small_space(), 0)


def test_a_deck_draws_from_a_space_that_is_too_large_to_list() -> None:
    axis = tuple(range(1000))
    space = listed_space(["a"], [(value,) for value in axis])
    large = Space(tuple("abcd"), (axis,) * 4, tuple(
        type(space.parts[0])((at,), space.parts[0].combinations) for at in range(4)
    ))  # fmt: skip
    deck = Deck(large, 0)
    drawn = [deck.draw() for _ in range(2000)]
    assert len(set(drawn)) == 2000
    assert large.size == 1000**4


def test_a_process_expects_more_where_an_interaction_is_good_and_nothing_where_all_is_known() -> None:
    """The least target is where the first two features add up to 5."""
    draw = random.Random(0)
    rows = [tuple(float(draw.randrange(6)) for _ in range(3)) for _ in range(40)]
    process = GaussianProcess(3, seed=0)
    process.fit(rows, [abs(row[0] + row[1] - 5) for row in rows])
    good, bad = process.improvements([(1.0, 4.0, 2.5), (5.0, 5.0, 2.5)])
    assert good > 10 * bad


@pytest.mark.parametrize("count", [1, 9])
def test_a_process_copes_with_results_that_are_all_the_same(count: int) -> None:
    process = GaussianProcess(1, seed=0)
    process.fit([(1.0,)] * count, [5.0] * count)
    (gain,) = process.improvements([(9.0,)])
    assert 0 < gain < 1


def test_the_default_strategy_arrives_where_it_may_fit_only_the_best_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.tuning.pattern.MOST_FITTED", 12)
    recorded = made_search()
    found = replays(recorded, "pattern", len(recorded.trials) // 10, range(4))
    assert all(one.lead is not None and one.lead < 1.03 for one in found)


def test_the_default_strategy_arrives_within_a_tenth_of_the_made_space() -> None:
    recorded = made_search()
    size = len(recorded.trials)
    assert size == 5328
    found = replays(recorded, "pattern", size // 10, range(10))
    assert sum(one.evaluations is not None for one in found) >= 9
    assert all(one.lead is not None and 1 <= one.lead < 1.03 for one in found)
    by_chance = replays(recorded, "random", size // 10, range(4))
    assert (median_evaluations(found) or math.inf) < (median_evaluations(by_chance) or math.inf)


def test_two_objectives_give_settings_between_the_two_best_ones() -> None:
    """The first objective falls along an axis of 200 values, and the second one rises; another axis costs both."""
    space = listed_space(["along", "beside"], [(along, beside) for along in range(200) for beside in range(10)])
    strategy = chosen("nsga2", space)
    told: list[tuple[int, int]] = []
    for _ in range(200):
        point = strategy.ask()  # type: ignore[attr-defined]
        along, beside = point
        told.append(point)
        strategy.tell(point, 1.0 + along + 50 * beside, 200.0 - along + 50 * beside)  # type: ignore[attr-defined]
    late = told[100:]
    assert sum(beside == 0 for _, beside in late) > len(late) / 4  # by chance a tenth
    assert max(along for along, beside in late if beside == 0) - min(along for along, beside in late if not beside) > 50
