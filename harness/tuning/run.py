"""Runs a search of a user: opens the judge, continues from the store, and holds the finals."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.compilation.cache import BuildCache
from harness.device.devices import guess, several
from harness.errors import UsageError
from harness.evaluator import Evaluator
from harness.records.record import EvaluationRecord
from harness.records.store import Store
from harness.tuning.finals import Decision, decide, finalists
from harness.tuning.known import known_points
from harness.tuning.results import Trial
from harness.tuning.search import Limits, Question, Search
from harness.tuning.space import Point
from harness.tuning.strategies import UNLEARNED, make_strategy
from harness.tuning.template import Searched

#: Trials of the short run that each setting gets on a GPU before the finals.
SHORT_TRIALS = 1
#: An exhaustive search of more settings needs a budget.
MOST_EXHAUSTIVE = 100_000
#: A strategy that learns chooses one setting ahead for so many of its budget.
BUDGET_PER_AHEAD = 8


@dataclass(frozen=True, kw_only=True)
class Order:
    """The user's order.

    Attributes:
        root: Folder with ``problems`` and ``templates``.
        home: ``HARNESS_HOME``.
        device: The device, as ``--device`` takes it.
        question: What every setting is judged on.
        strategy: Name of the strategy.
        seed: Its seed.
        limits: When the search ends.
        lanes: Number of settings that the CPU judges in parallel.
        checks: Whether the emulator checks every access.
        forward_only: Whether to judge outputs only.
        against: The objective beside time, of ``results.OBJECTIVES``; empty for none.
        timeout_s: Timeout in seconds for a run; None for the usual one.
        build_timeout_s: Timeout in seconds for builds; None for the usual one.
    """

    root: Path
    home: Path
    device: str
    question: Question
    strategy: str
    seed: int
    limits: Limits
    lanes: int = 1
    checks: bool = False
    forward_only: bool = False
    against: str = ""
    timeout_s: float | None = None
    build_timeout_s: float | None = None


@dataclass
class Progress:
    """The results of a search so far, also while it runs and after an interrupt.

    Attributes:
        device: ``cpu`` or ``cuda:N``; empty before the judge is ready.
        machine: The device in words; empty before the first record.
        cases: Names of the cases; empty before the first record.
        trials: The results, in the order in which they were finished.
        same: Number of settings that share the result of another one with the same text.
        decision: The result of the finals; None before them and on the CPU.
        is_out_of_time: Whether the time was up before the search had ended.
        is_finished: Whether nothing interrupted the search.
    """

    device: str = ""
    machine: str = ""
    cases: tuple[str, ...] = ()
    trials: list[Trial] = field(default_factory=list)
    same: int = 0
    decision: Decision | None = None
    is_out_of_time: bool = False
    is_finished: bool = False


def run_search(
    evaluator: Evaluator,
    searched: Searched,
    order: Order,
    progress: Progress,
    on_trial: Callable[[Trial], None],
) -> None:
    """Runs a search.

    Args:
        evaluator: The judge, which ``judge_of`` opened.
        searched: The template.
        order: The order.
        progress: Receives each result.
        on_trial: Called after each result.

    Raises:
        HarnessError: The problem does not run, or the store cannot be read.
    """
    strategy = make_strategy(order.strategy, searched.space, order.seed)
    began_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")

    def add(trial: Trial) -> None:
        progress.trials.append(trial)
        progress.same, progress.machine, progress.cases = search.same, search.machine, search.cases
        on_trial(trial)

    progress.device = evaluator.device
    is_timed = evaluator.device != "cpu"
    with Store(order.home) as store:  # behind the evaluator, which migrates an older store
        known = known_points(store, searched, evaluator.device)
    search = Search(
        searched,
        strategy,
        order.limits,
        began_at,
        starts=[*searched.first_points(), *known.older],
        known=known.answered,
        trials=SHORT_TRIALS if is_timed else None,  # on the CPU every run is in full
        against=order.against,
        kernels_of=BuildCache(order.home / "builds").kernels,
    )
    search.run(evaluator, order.question, add, _ahead(order))
    progress.is_out_of_time, progress.same = search.is_out_of_time, search.same
    if is_timed:
        progress.decision = _finals(searched, order.question, evaluator, progress.trials)
    progress.is_finished = True


def _ahead(order: Order) -> int | None:
    """Returns how many settings to choose ahead: few if a strategy that learns has few to learn from."""
    if order.limits.budget is None or order.strategy in UNLEARNED:
        return None
    return min(order.limits.budget // BUDGET_PER_AHEAD, os.cpu_count() or 1)


def _finals(searched: Searched, question: Question, evaluator: Evaluator, trials: Sequence[Trial]) -> Decision | None:
    """Holds the finals on a GPU; None if no setting has a time."""
    space = searched.space
    points = finalists(
        trials, lambda trial: tuple(trial.settings[name] for name in space.names), space.point(searched.start)
    )
    if not points:
        return None

    def judge(chosen: Sequence[Point], is_full: bool) -> Mapping[Point, Sequence[EvaluationRecord]]:
        """Judges settings in full, which the store may answer, or again for their times alone."""
        count = None if is_full else SHORT_TRIALS
        entries = [
            question.entry(searched, point, searched.body(point), trials=count, fresh=not is_full) for point in chosen
        ]
        answers = list(evaluator.stream(entries))
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        return {answer.entry.tag: answer.records for answer in answers}

    return decide(points, judge, lambda point: searched.differences(searched.space.settings(point)))


@contextlib.contextmanager
def judge_of(searched: Searched, order: Order) -> Iterator[Evaluator]:
    """Opens the judge for searches.

    Raises:
        UsageError: The order does not fit the space or the device.
        HarnessError: The device, its tools or the store is missing.
    """
    if order.strategy == "exhaustive" and order.limits == Limits(None, None) and searched.space.size > MOST_EXHAUSTIVE:
        raise UsageError(
            f"{searched.space.size:,} settings are too many to judge each: name values with -p, or give --budget"
        )
    make_strategy(order.strategy, searched.space, order.seed)

    def opened(device: str) -> Evaluator:
        return Evaluator(
            device,
            order.home,
            root=order.root,
            timeout_s=order.timeout_s,
            build_timeout_s=order.build_timeout_s,
            forward_only=order.forward_only,
            check=order.checks,
            lanes=order.lanes,
        )

    likely = guess(several(order.device, order.lanes)[0])
    evaluator = opened("cpu" if likely == "cpu" else order.device)
    if evaluator.device == "cpu" and likely != "cpu":  # a driver, but no GPU for torch
        evaluator.close()
        evaluator = opened("cpu")
    with evaluator:
        yield evaluator
