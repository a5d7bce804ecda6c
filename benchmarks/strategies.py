"""A simulation: which strategy of ``generate`` finds a fast kernel with the fewest answers?

    python -m benchmarks.strategies --seeds 200 --candidates 20
    python -m benchmarks.strategies --seeds 200 --candidates 20 --openevolve

No model is asked and nothing is judged. A simulated model answers each turn with a kernel that does not build, is
wrong, or is right and has a speed, by the probabilities below. They are assumptions, and differ between four problems
from easy to hard. An edit approaches the best speed that the kernel's structure allows, and a rewrite draws another
structure. The strategies are those that ``generate`` runs, with the same budget and the same seeds. With
``--openevolve`` the search of that package is another row (``benchmarks.openevolve_strategy``).

Prints for each problem and strategy the median and the quartiles of the best speedup over eager (0 if nothing passed)
and of the number of answers to the first pass (one more than the budget if there was none).
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from harness.generation.attempts import Attempt, Kind, Outcome, best_of
from harness.generation.strategies import Strategy, strategies
from harness.records.record import EvaluationRecord, PrecisionClass, Status

#: Earlier seeds chose the defaults of the tree.
FIRST_SEED = 1000
BLANK = EvaluationRecord(
    problem="simulated",
    solution="",
    case="full",
    device="cuda:0",
    status=Status.PASSED,
    message="",
    seed="",
    digest="",
    problem_digest="",
    precision_class=PrecisionClass.FP32,
    own_share=1.0,
)


@dataclass(frozen=True)
class Task:
    """A problem for the simulated model.

    Attributes:
        name: Its name.
        right: Probability that a first answer is right.
        builds: Probability that an answer which is not right builds.
        repaired: Probability that a repair is right.
        kept: Probability that an edit of a right kernel is right; half of it for a rewrite.
        first: Median speedup of a right first answer.
        spread: Spread of the logarithm of what structures allow.
    """

    name: str
    right: float
    builds: float
    repaired: float
    kept: float
    first: float
    spread: float


TASKS = (
    Task("easy", 0.6, 0.7, 0.5, 0.8, 1.0, 0.3),
    Task("middling", 0.3, 0.6, 0.4, 0.7, 0.8, 0.5),
    Task("hard", 0.1, 0.5, 0.25, 0.6, 0.6, 0.6),
    Task("very hard", 0.03, 0.4, 0.12, 0.5, 0.5, 0.8),
)


@dataclass(frozen=True)
class Kernel:
    """A simulated kernel: its speedup once it is right, and the best one that its structure allows."""

    speed: float
    limit: float


def answered(task: Task, kind: Kind, parent: Kernel | None, luck: random.Random) -> tuple[Kernel, Status]:
    """Draws the model's answer. A repair keeps speed and structure of what it repairs."""
    limit = task.first * math.exp(luck.gauss(0.5, task.spread))
    kernel = Kernel(limit * luck.uniform(0.4, 0.9), limit)
    if parent is not None and kind is Kind.REPAIR:
        kernel = parent
    elif parent is not None and kind is Kind.EDIT:
        kernel = replace(parent, speed=parent.speed + luck.uniform(-0.2, 0.5) * (parent.limit - parent.speed))
    chances = {Kind.WRITE: task.right, Kind.REPAIR: task.repaired, Kind.EDIT: task.kept, Kind.REWRITE: task.kept / 2}
    if luck.random() < chances[kind]:
        return kernel, Status.PASSED
    return kernel, Status.WRONG_OUTPUT if luck.random() < task.builds else Status.BUILD_ERROR


def simulated(task: Task, strategy: Strategy, candidates: int, seed: int) -> tuple[float, int]:
    """Runs a strategy; returns the best speedup, and the number of answers to the first pass."""
    luck = random.Random(f"{task.name} {seed}")
    kernels: dict[int, Kernel] = {}
    history: list[Attempt] = []
    first = candidates + 1
    for number in range(1, candidates + 1):
        move = strategy.next(history)
        assert move is not None
        kernel, status = answered(task, move.kind, None if move.parent is None else kernels[move.parent], luck)
        kernels[number] = kernel
        measured = {"forward_backward": (kernel.speed, kernel.speed)} if status is Status.PASSED else {}
        certified = {direction: {"calls": 1} for direction in measured}
        record = replace(BLANK, status=status, speedup_interval=measured, certified=certified)
        history.append(
            Attempt(
                number, move.kind, move.parent, "simulated", "", Outcome.JUDGED, source=f"{kernel}", records=(record,)
            )
        )
        if status is Status.PASSED:
            first = min(first, number)
    best = best_of(history)
    return 0.0 if best is None else kernels[best.number].speed, first


def quartiles(values: list[float]) -> str:
    """Returns the median with the quartiles in brackets."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:5.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--openevolve", action="store_true", help="also run OpenEvolve's search")
    given = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    print(f"{'problem':10} {'strategy':10} {'best speedup':>22} {'answers to a pass':>24} {'passed':>8}")
    made: list[Callable[[int], Strategy]] = [lambda _, one=one: one for one in strategies()]
    if given.openevolve:
        from benchmarks.openevolve_strategy import OpenEvolve

        made.append(OpenEvolve)
    for task in TASKS:
        for make in made:
            strategy = make(0)
            runs = [simulated(task, make(seed), given.candidates, seed) for seed in seeds]
            speeds, firsts = [speed for speed, _ in runs], [float(first) for _, first in runs]
            passed = sum(speed > 0 for speed in speeds) / len(runs)
            print(f"{task.name:10} {strategy.name:10} {quartiles(speeds):>22} {quartiles(firsts):>24} {passed:>7.0%}")


if __name__ == "__main__":
    main()
