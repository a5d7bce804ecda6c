"""Scores samples: several answers of a model to each of several problems.

A sample is correct if all its records passed. Shares and pass@k are over *problems*: a problem with
many samples counts as much as one with few. A geometric mean is over the timed correct samples.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from harness.records.baselines import EAGER
from harness.records.record import EvaluationRecord, Status
from harness.records.run_config import KERNELBENCH, RELAXED
from harness.timing.scores import geometric_mean, number, ratios
from harness.timing.statistics import measured

#: Statuses that are no verdict on a sample: here it could not run as it should.
UNJUDGED = (Status.INTERPRETED, Status.UNSUPPORTED, Status.HARNESS_ERROR)
#: The k of ``pass@k`` and the p of ``fast_p`` that are scored.
KS, PS = (1, 5, 10), (1.0, 1.5, 2.0)
DIRECTIONS = ("forward", "forward_backward")


class Counting(StrEnum):
    """A way to count samples as correct.

    ``PASSED`` takes the harness's verdict. ``OWN_KERNEL`` also requires work of the solution's own
    kernels. ``KERNELBENCH`` takes the verdict and the times of KernelBench's evaluator.
    """

    PASSED = "passed"
    OWN_KERNEL = "own kernel"
    KERNELBENCH = "kernelbench"


#: How times are measured, by the way of counting.
_CLOCKS = {
    Counting.PASSED: "certified CUDA events in paired rounds; median of ratios",
    Counting.OWN_KERNEL: "certified CUDA events in paired rounds; median of ratios",
    Counting.KERNELBENCH: "CUDA events; ratio of means",
}


@dataclass(frozen=True)
class SampleResult:
    """The result of one sample.

    Attributes:
        model: Name of the model or run; may be empty.
        level: Name of the folder of the problem's file.
        problem: The problem's name.
        number: Number of the sample.
        records: Its records, one for each judged case.
    """

    model: str
    level: str
    problem: str
    number: int
    records: tuple[EvaluationRecord, ...]

    @property
    def unjudged(self) -> Status | None:
        """The status of a case without a verdict, if no other case is a failure; None if the sample is judged."""
        others = [record.status for record in self.records if record.status is not Status.PASSED]
        return others[0] if others and all(one in UNJUDGED for one in others) else None

    def is_correct(self, counting: Counting = Counting.PASSED) -> bool:
        """Tells whether a way of counting takes the sample as correct: in all its cases."""
        if counting is Counting.KERNELBENCH:
            return all(record.kernelbench.get("correct") is True for record in self.records)
        has_passed = all(record.status is Status.PASSED for record in self.records)
        return has_passed and not (
            counting is Counting.OWN_KERNEL and any(record.has_no_own_kernel for record in self.records)
        )

    def speedups(self, direction: str, counting: Counting = Counting.PASSED) -> list[float]:
        """Returns the speedups over eager of the first timed case; empty if there is none.

        They are paired ratios; in KernelBench's way of counting, one ratio of means.
        """
        if not self.is_correct(counting):
            return []
        if counting is Counting.KERNELBENCH:
            found = [number(record.kernelbench.get("speedup")) for record in self.records]
            return [one for one in found if one is not None and direction == DIRECTIONS[0]][:1]
        return next((series for record in self.records if (series := ratios(record, EAGER, direction))), [])


class Share(NamedTuple):
    """A ``fast_p``.

    Attributes:
        best: Share of the problems of which some sample is correct and over p times as fast.
        low: The same with the lower ends of the samples' 95 % intervals; None without intervals.
        mean: Mean over problems of the share of such samples.
    """

    best: float
    low: float | None
    mean: float


class Mean(NamedTuple):
    """A geometric mean of speedups.

    Attributes:
        ratio: The mean.
        low: Lower end of its 95 % interval; None without one.
        high: Upper end.
    """

    ratio: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class SampleScore:
    """The score of a set of samples.

    Attributes:
        model: Name of the model; empty for all.
        level: Name of the level; empty for all.
        counting: Which samples count as correct.
        baseline: What speedups are over.
        precision: Precision classes of the problems, and ``relaxed`` if the policy is.
        clock: How times are measured; None if there are none.
        problems: Number of problems with a judged answer: the denominator of ``solved``,
            ``pass_at`` and ``fast``.
        samples: Number of judged samples: the denominator of ``correct``.
        unjudged: Number of samples without a verdict, which count nowhere else.
        correct: Number of correct samples.
        own: Number of samples that passed with a kernel of their own.
        solved: Number of problems with a correct sample.
        timed: Number of correct samples with a speedup, by direction: what ``mean`` is over.
        pass_at: ``pass@k`` by k, over the problems with at least k samples; only the k that all
            problems have samples for.
        fast: ``fast_p`` by direction and p; no entry for a direction without a timed sample.
        mean: Geometric mean of the timed samples' speedups over eager, by direction, with its 95 %
            interval.
    """

    model: str
    level: str
    counting: Counting
    baseline: str
    precision: str
    clock: str | None
    problems: int
    samples: int
    unjudged: int
    correct: int
    own: int
    solved: int
    timed: dict[str, int]
    pass_at: dict[int, float]
    fast: dict[str, dict[float, Share]]
    mean: dict[str, Mean]


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Estimates without bias the probability that one of k samples of a problem is correct.

    Source: Chen et al., 2021, "Evaluating Large Language Models Trained on Code", equation 1.

    Raises:
        ValueError: There are fewer than k samples.
    """
    if k > samples:
        raise ValueError(f"pass@{k} needs at least {k} samples, not {samples}")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def sample_scores(results: Sequence[SampleResult]) -> list[SampleScore]:
    """Scores samples by model and level, and each model over all levels if it has several.

    Each has one score for every way of counting; KernelBench's only if a record has its verdict.
    """
    scores = []
    for model in dict.fromkeys(one.model for one in results):
        of_model = [one for one in results if one.model == model]
        levels = list(dict.fromkeys(one.level for one in of_model))
        scores += [
            score
            for level in levels
            for score in _scores(model, level, [one for one in of_model if one.level == level])
        ]
        if len(levels) > 1:
            scores += _scores(model, "", of_model)
    return scores


def overall(results: Sequence[SampleResult]) -> SampleScore:
    """Scores samples of all models and levels together, by the harness's own verdict.

    Args:
        results: The samples; at least one.
    """
    return _score("", "", results, Counting.PASSED)


def _scores(model: str, level: str, results: Sequence[SampleResult]) -> list[SampleScore]:
    has_kernelbench = any(record.policy.get("preset") == KERNELBENCH for one in results for record in one.records)
    countings = [one for one in Counting if one is not Counting.KERNELBENCH or has_kernelbench]
    return [_score(model, level, results, counting) for counting in countings]


def _score(model: str, level: str, results: Sequence[SampleResult], counting: Counting) -> SampleScore:
    judged = [one for one in results if one.unjudged is None]
    unjudged, results = len(results) - len(judged), judged
    by_problem: dict[tuple[str, str], list[SampleResult]] = {}
    for one in results:
        by_problem.setdefault((one.level, one.problem), []).append(one)
    groups = list(by_problem.values())
    fewest = min(map(len, groups), default=0)
    series = {direction: [one.speedups(direction, counting) for one in results] for direction in DIRECTIONS}
    timed = {direction: [one for one in found if one] for direction, found in series.items()}
    return SampleScore(
        model=model,
        level=level,
        counting=counting,
        baseline=EAGER,
        precision=_precision(record for one in results for record in one.records),
        clock=_CLOCKS[counting] if any(timed.values()) else None,
        problems=len(groups),
        samples=len(results),
        unjudged=unjudged,
        correct=sum(one.is_correct(counting) for one in results),
        own=sum(one.is_correct(Counting.OWN_KERNEL) for one in results),
        solved=sum(any(one.is_correct(counting) for one in group) for group in groups),
        timed={direction: len(found) for direction, found in timed.items()},
        pass_at={
            k: _mean(pass_at_k(len(group), sum(one.is_correct(counting) for one in group), k) for group in groups)
            for k in KS
            if k <= fewest
        },
        fast={
            direction: {p: _fast(groups, direction, p, counting) for p in PS}
            for direction, found in timed.items()
            if found
        },
        mean={direction: _geometric(found) for direction, found in timed.items() if found},
    )


def _precision(records: Iterable[EvaluationRecord]) -> str:
    found = {
        f"{record.precision_class}{' relaxed' if record.policy.get('precision') == RELAXED else ''}"
        for record in records
    }
    return ", ".join(sorted(found))


def _geometric(series: Sequence[Sequence[float]]) -> Mean:
    if all(len(one) > 1 for one in series):
        mean = geometric_mean(series)
        assert mean is not None
        return Mean(*mean)
    return Mean(math.exp(_mean(math.log(statistics.median(one)) for one in series)), None, None)


def _fast(groups: Sequence[Sequence[SampleResult]], direction: str, p: float, counting: Counting) -> Share:
    speedups = [[found for one in group if (found := one.speedups(direction, counting))] for group in groups]
    has_intervals = all(len(one) > 1 for group in speedups for one in group)
    faster = [[statistics.median(one) > p for one in group] for group in speedups]
    return Share(
        best=_mean(any(group) for group in faster),
        low=_mean(any(measured(one).low > p for one in group) for group in speedups) if has_intervals else None,
        mean=_mean(sum(fast) / len(group) for fast, group in zip(faster, groups, strict=True)),
    )


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
