"""Scores samples: several answers of a model to each of several problems.

A sample is correct if all its records passed. Everything else is over *problems*: a problem with
many samples counts as much as one with few.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.records.baselines import EAGER
from harness.records.record import EvaluationRecord, Status
from harness.timing.scores import geometric_mean, ratios
from harness.timing.statistics import Interval, measured

#: The k of ``pass@k`` and the p of ``fast_p`` that are scored.
KS, PS = (1, 5, 10), (1.0, 1.5, 2.0)
DIRECTIONS = ("forward", "forward_backward")


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
    def is_correct(self) -> bool:
        """Whether all cases passed."""
        return all(record.status is Status.PASSED for record in self.records)

    @property
    def has_own_kernel(self) -> bool:
        """Whether it is correct and no record lacks a kernel of its own."""
        return self.is_correct and not any(record.has_no_own_kernel for record in self.records)

    def series(self, direction: str) -> list[float]:
        """Returns the paired ratios over eager of the first timed case; empty if there is none."""
        if not self.is_correct:
            return []
        return next((found for record in self.records if (found := ratios(record, EAGER, direction))), [])


class Share(NamedTuple):
    """A ``fast_p``.

    Attributes:
        best: Share of the problems of which some sample is correct and over p times as fast.
        low: The same with the lower ends of the samples' 95 % intervals.
        mean: Mean over problems of the share of such samples.
    """

    best: float
    low: float
    mean: float


@dataclass(frozen=True)
class SampleScore:
    """The score of a set of samples.

    Attributes:
        model: Name of the model; empty for all.
        level: Name of the level; empty for all.
        problems: Number of problems.
        samples: Number of samples.
        correct: Number of correct samples.
        own: Number of these with a kernel of their own.
        solved: Number of problems with a correct sample.
        timed: Number of correct samples with a certified speedup, by direction.
        pass_at: ``pass@k`` by k, over the problems with at least k samples; only the k that all
            problems have samples for.
        fast: ``fast_p`` by direction and p; no entry for a direction without a timed sample.
        mean: Geometric mean of the timed samples' speedups over eager, by direction, with its 95 %
            interval.
    """

    model: str
    level: str
    problems: int
    samples: int
    correct: int
    own: int
    solved: int
    timed: dict[str, int]
    pass_at: dict[int, float]
    fast: dict[str, dict[float, Share]]
    mean: dict[str, Interval]


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
    """Scores samples by model and level, and each model over all levels if it has several."""
    scores = []
    for model in dict.fromkeys(one.model for one in results):
        of_model = [one for one in results if one.model == model]
        levels = list(dict.fromkeys(one.level for one in of_model))
        scores += [_score(model, level, [one for one in of_model if one.level == level]) for level in levels]
        if len(levels) > 1:
            scores.append(_score(model, "", of_model))
    return scores


def _score(model: str, level: str, results: Sequence[SampleResult]) -> SampleScore:
    by_problem: dict[tuple[str, str], list[SampleResult]] = {}
    for one in results:
        by_problem.setdefault((one.level, one.problem), []).append(one)
    groups = list(by_problem.values())
    fewest = min(map(len, groups))
    series = {direction: [one.series(direction) for one in results] for direction in DIRECTIONS}
    timed = {direction: [one for one in found if one] for direction, found in series.items()}
    return SampleScore(
        model=model,
        level=level,
        problems=len(groups),
        samples=len(results),
        correct=sum(one.is_correct for one in results),
        own=sum(one.has_own_kernel for one in results),
        solved=sum(any(one.is_correct for one in group) for group in groups),
        timed={direction: len(found) for direction, found in timed.items()},
        pass_at={
            k: _mean(pass_at_k(len(group), sum(one.is_correct for one in group), k) for group in groups)
            for k in KS
            if k <= fewest
        },
        fast={direction: {p: _fast(groups, direction, p) for p in PS} for direction, found in timed.items() if found},
        mean={direction: mean for direction, found in timed.items() if (mean := geometric_mean(found)) is not None},
    )


def _fast(groups: Sequence[Sequence[SampleResult]], direction: str, p: float) -> Share:
    speedups = [[measured(one.series(direction)) for one in group if one.series(direction)] for group in groups]
    return Share(
        best=_mean(any(one.ratio > p for one in group) for group in speedups),
        low=_mean(any(one.low > p for one in group) for group in speedups),
        mean=_mean(
            sum(one.ratio > p for one in fast) / len(group) for fast, group in zip(speedups, groups, strict=True)
        ),
    )


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
