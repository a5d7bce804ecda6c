"""A simulation: which strategy of ``generate`` finds a fast kernel with the fewest answers?

    python -m benchmarks.strategies --pool benchmarks/answer_pool.json --seeds 200 --candidates 20
    python -m benchmarks.strategies --pool benchmarks/answer_pool.json --seeds 200 --candidates 20 --openevolve

No model is asked. A simulated one answers each turn with a member of a pool that the harness has judged once
(``benchmarks.answer_pool``): real kernels, with the statuses that the emulator gave and the speedups that a GPU gave. A
pool without speedups shows the answers to the first pass alone.

What the simulated model does:

- A first answer and a rewrite take a structure by chance, with a setting by chance. A first answer that is told what
  was tried takes another structure in half of the cases. A rewrite takes another one always.
- An edit moves one parameter of the setting to a neighbouring value.
- A text has mistakes, so many in a line that ``--right`` of the first answers have none. So longer structures have
  more. The default, 49 of 100, is what the harness measured over one answer to each problem of KernelBench's level 1
  (benchmarks/README.md). Of the mistakes 33 in 50 do not build, as there. An edit changes a fifth of the lines.
- That figure is of a hundred problems, and some are harder for a model than others: for each seed the number of
  mistakes is multiplied by a log-normal factor, ``--spread`` wide.
- Only the first mistake shows, one that does not build before others: the verdict is that of a member of the same
  structure with such a defect, or of another one if it has none. A repair mends the mistake that shows with the
  probability ``--repaired``.

How much an edit changes, what a repair mends, the spread, and how often a model heeds what it is told are assumptions.
The strategies are those that ``generate`` runs, by the same protocol, with the same budget and the same seeds. With
``--openevolve`` the search of that package is another row (``benchmarks.openevolve_strategy``).

Prints for each problem and strategy the mean, the median and the quartiles over seeds: of the best speedup, as a share
of the pool's best, and of the answers to the first pass (one more than the budget if there was none).
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.answer_pool import Member, read_pool
from benchmarks.common import count, program, share
from harness.errors import UsageError
from harness.generation.attempts import Attempt, Kind, Outcome, best_of
from harness.generation.strategies import Move, Strategy, strategies
from harness.records.record import EvaluationRecord, PrecisionClass, Status

#: Earlier seeds chose the defaults of the tree.
FIRST_SEED = 1000
#: Answers to level 1 that passed; of the others, those that did not build (benchmarks/README.md).
RIGHT, UNBUILT = 49 / 100, 33 / 50
#: Assumptions: repairs that mend what shows, lines that an edit changes, first answers that heed what was tried.
REPAIRED, EDITED, HEEDED, SPREAD = 0.5, 0.2, 0.5, 1.0
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
class Text:
    """An answer of the simulated model.

    Attributes:
        right: The member of the pool that it is once its mistakes are mended.
        mistakes: The members that show its mistakes, in the order in which they show.
    """

    right: Member
    mistakes: tuple[Member, ...] = ()

    @property
    def status(self) -> Status:
        """The verdict on it."""
        return Status(self.mistakes[0].status) if self.mistakes else Status.PASSED


class Task:
    """A problem with its pool, and a model that answers by chance.

    Args:
        name: The problem.
        pool: Its members that were judged.
        right: Share of the first answers that are right.
        repaired: Probability that a repair mends what shows.
        spread: Spread of the logarithm of how hard the problem is for a model.
    """

    def __init__(
        self,
        name: str,
        pool: Sequence[Member],
        right: float = RIGHT,
        repaired: float = REPAIRED,
        spread: float = SPREAD,
    ):
        self.name = name
        self._repaired = repaired
        timed = any(one.speedup is not None for one in pool)
        passed = [one for one in pool if not one.defect and one.status == Status.PASSED]
        self._right: dict[str, list[Member]] = {}
        for one in passed:
            if not timed or one.speedup is not None:
                self._right.setdefault(one.structure, []).append(one)
        wrong = {
            unbuilt: [
                one
                for one in pool
                if one.status not in (None, Status.PASSED) and (one.status == Status.BUILD_ERROR) is unbuilt
            ]
            for unbuilt in (True, False)
        }
        if not self._right or not all(wrong.values()):
            raise UsageError(f"the pool of {name} lacks right, wrong or broken answers: let answer_pool finish")
        self._wrong = {
            structure: {
                unbuilt: [one for one in found if one.structure == structure] or found
                for unbuilt, found in wrong.items()
            }
            for structure in self._right
        }
        self.best = max((one.speedup or 0.0 for one in passed), default=0.0)
        steps = range(1, 200) if spread else range(100, 101)
        self._factors = [math.exp(spread * statistics.NormalDist().inv_cdf(step / 200)) for step in steps]
        self._rate = self._mistakes_a_line(right)

    def hardness(self, luck: random.Random) -> float:
        """Draws how hard the problem is for a model: a factor of the number of mistakes."""
        return luck.choice(self._factors)

    def answered(
        self, move: Move, parent: Text | None, tried: Sequence[Text], hardness: float, luck: random.Random
    ) -> Text:
        """Draws the model's answer to a turn; ``tried`` is what a first answer is told."""
        if parent is None or move.kind is Kind.WRITE:
            told = {one.right.structure for one in tried} if luck.random() < HEEDED else set()
            return self._written(told, hardness, luck)
        if move.kind is Kind.REWRITE:
            return self._written({parent.right.structure}, hardness, luck)
        if move.kind is Kind.EDIT:
            right = luck.choice(self._neighbours(parent.right) or [parent.right])
            return Text(right, self._drawn(right, EDITED * hardness, luck))
        return replace(parent, mistakes=parent.mistakes[1:]) if luck.random() < self._repaired else parent

    def _written(self, but: set[str], hardness: float, luck: random.Random) -> Text:
        structures = [one for one in self._right if one not in but] or list(self._right)
        right = luck.choice(self._right[luck.choice(structures)])
        return Text(right, self._drawn(right, hardness, luck))

    def _drawn(self, right: Member, share: float, luck: random.Random) -> tuple[Member, ...]:
        """Draws the mistakes in a share of a text's lines, which hardness multiplies."""
        left, number = math.exp(-self._rate * right.lines * share), 0
        product = luck.random()
        while product > left:  # a Poisson number, by Knuth
            number, product = number + 1, product * luck.random()
        unbuilt = sum(luck.random() < UNBUILT for _ in range(number))
        wrong = self._wrong[right.structure]
        return (
            *(luck.choice(wrong[True]) for _ in range(unbuilt)),
            *(luck.choice(wrong[False]) for _ in range(number - unbuilt)),
        )

    def _neighbours(self, one: Member) -> list[Member]:
        """Returns the members whose setting differs in one parameter, by one step in its recorded values."""
        family = self._right[one.structure]
        axes = {name: list(dict.fromkeys(other.setting[name] for other in family)) for name in one.setting}
        for values in axes.values():
            values.sort(key=lambda value: (str(type(value)), value))

        def steps(other: Member) -> int:
            return sum(
                abs(axes[name].index(value) - axes[name].index(other.setting[name]))
                for name, value in one.setting.items()
            )

        return [other for other in family if steps(other) == 1]

    def _mistakes_a_line(self, right: float) -> float:
        """Returns the rate with which this share of the first answers have no mistake, by bisection."""
        lengths = [statistics.fmean(one.lines for one in family) for family in self._right.values()]
        low, high = 0.0, 1.0
        for _ in range(40):
            rate = (low + high) / 2
            is_low = statistics.fmean(math.exp(-rate * one * by) for one in lengths for by in self._factors) > right
            low, high = (rate, high) if is_low else (low, rate)
        return low


def simulated(task: Task, strategy: Strategy, candidates: int, seed: int) -> tuple[float, int]:
    """Runs a strategy; returns the best speedup, and the number of answers to the first pass."""
    luck = random.Random(f"{task.name} {seed}")
    hardness = task.hardness(luck)
    texts: dict[int, Text] = {}
    history: list[Attempt] = []
    first = candidates + 1
    for number in range(1, candidates + 1):
        move = strategy.next(history)
        if move is None:
            break
        parent = None if move.parent is None else texts[move.parent]
        text = task.answered(move, parent, [texts[one] for one in move.unlike], hardness, luck)
        is_known = not text.mistakes and any(text == other for other in texts.values())
        texts[number] = text
        history.append(_attempt(number, move, text, is_known=is_known))
        if text.status is Status.PASSED:
            first = min(first, number)
    best = best_of(history)
    return 0.0 if best is None else texts[best.number].right.speedup or 0.0, first


def _attempt(number: int, move: Move, text: Text, *, is_known: bool) -> Attempt:
    """Returns the settled attempt; a right answer that was there before is a duplicate, as in ``generate``."""
    one = Attempt(number, move.kind, move.parent, "simulated", "", source=f"{text.right.key} {len(text.mistakes)}")
    if is_known:
        return replace(one, outcome=Outcome.DUPLICATE)
    speed = text.right.speedup
    measured = {"forward_backward": (speed, speed)} if text.status is Status.PASSED and speed else {}
    certified = {direction: {"calls": 1} for direction in measured}
    record = replace(BLANK, status=text.status, speedup_interval=measured, certified=certified)
    return replace(one, outcome=Outcome.JUDGED, records=(record,))


def spread_of(values: Sequence[float]) -> str:
    """Returns the mean, the median, and the quartiles in brackets."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{statistics.fmean(values):5.2f} {middle:5.2f} [{low:.2f}, {high:.2f}]"


def tasks_of(
    pool: Sequence[Member], right: float = RIGHT, repaired: float = REPAIRED, spread: float = SPREAD
) -> list[Task]:
    """Returns the problems of a pool."""
    problems: Mapping[str, list[Member]] = {one.problem: [] for one in pool}
    for one in pool:
        problems[one.problem].append(one)
    return [Task(name, judged, right, repaired, spread) for name, judged in problems.items()]


def work() -> int:
    """Prints the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pool", type=Path, required=True, help="what benchmarks.answer_pool wrote")
    parser.add_argument("--seeds", type=count, default=200)
    parser.add_argument("--candidates", type=count, default=20)
    parser.add_argument("--right", type=share, default=RIGHT, help="share of the first answers that are right")
    parser.add_argument("--repaired", type=share, default=REPAIRED, help="share of the repairs that mend a mistake")
    parser.add_argument(
        "--spread", type=float, default=SPREAD, help="how much problems differ for a model; 0: not at all"
    )
    parser.add_argument("--openevolve", action="store_true", help="also run OpenEvolve's search")
    given = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    made: list[Callable[[int], Strategy]] = [lambda _, one=one: one for one in strategies()]
    if given.openevolve:
        from benchmarks.openevolve_strategy import OpenEvolve

        made.append(OpenEvolve)
    print(f"{'problem':38} {'strategy':10} {'share of the best speed':>25} {'answers to a pass':>26} {'passed':>7}")
    for task in tasks_of(read_pool(given.pool), given.right, given.repaired, given.spread):
        for make in made:
            runs = [simulated(task, make(seed), given.candidates, seed) for seed in seeds]
            shares = spread_of([speed / task.best for speed, _ in runs]) if task.best else "-"
            firsts = [first for _, first in runs]
            passed = sum(first <= given.candidates for first in firsts) / len(runs)
            name = make(0).name
            print(f"{task.name:38} {name:10} {shares:>25} {spread_of(firsts):>26} {passed:>6.0%}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(program(work))
