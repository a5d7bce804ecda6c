"""Does the harness tell what is the same from what is slower? The problem's own model is judged against itself.

    python -m benchmarks.same_and_slower --repeats 3 --series 10 --slower-repeats 1 --slower-series 3 --json same.json

The candidate `same` is the problem's `Model`, and so is eager, its rival: whoever is called FASTER or SLOWER there is
so by mistake. The others are the same with a kernel that spins behind the forward, and behind the backward, for a
share of what eager takes: 3 % must be found SLOWER; 0.5 %, which is less than what counts as the same, must end SAME
once its interval is narrower than that.

`--repeats` are evaluations by the harness's own judge, each in a worker of its own; of each, `--series` are taken: the
evaluation's own, and further ones that only repeat the timing, on other inputs and in another order. Those take less
than a second each, but share their two processes: what one process has over another, such as where its memory lies, is
in all of them. Prints a table for each problem and direction, and one with every series. Exit code 1 where something
does not hold, 2 where the call is wrong or there is no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import (
    LIMITS,
    Budget,
    count,
    cycles_per_ms,
    parser,
    positive,
    program,
    save,
    say,
    session_on_gpu,
    table,
    written,
)
from harness.executors.session import Session
from harness.judge.compare.trial_result import TrialResult
from harness.judge.evaluation.candidate_judge import CandidateJudge
from harness.judge.policy import Policy, new_secret
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.timing.paired_timing import PRECISION, BaselineError, Series
from harness.judge.timing.speed import SpeedTimer, TimingResult
from harness.judge.timing.timing_target import TimingTarget
from harness.project.paths import project_root
from harness.project.problems import Problem
from harness.project.solutions import find_problem, problem_paths
from harness.records.baselines import EAGER
from harness.records.record import EvaluationRecord, Status
from harness.timing.statistics import SAMENESS, Interval, SpeedVerdict

#: A 95 % interval misses what it is to hold in this share of all cases.
STATED = 0.05
CANDIDATE = '''

# What follows was appended: the problem's own model as a candidate, with a pause of known length.
FORWARD_MS, BACKWARD_MS = {forward_ms!r}, {backward_ms!r}


def pause(milliseconds):
    """Keep the device busy."""
    {pause}


class Pausing(torch.autograd.Function):
    """The identity, whose backward pauses."""

    @staticmethod
    def forward(ctx, y):
        return y.view_as(y)

    @staticmethod
    def backward(ctx, dy):
        pause(BACKWARD_MS)
        return dy


class ModelNew(Model):
    """The model; it pauses behind what it has computed, unless there is nothing to pause for."""

    def forward(self, *arguments):
        result = super().forward(*arguments)
        if FORWARD_MS:
            pause(FORWARD_MS)
        return Pausing.apply(result) if BACKWARD_MS and torch.is_grad_enabled() else result
'''


def device_pause(per_ms: float) -> str:
    """The statement that keeps a GPU busy for ``milliseconds``, by cycles in a millisecond."""
    return f"torch.cuda._sleep(round(milliseconds * {per_ms!r}))"


def source(problem: Problem, eager_ms: dict[str, float], share: float, pause: str) -> str:
    """A candidate: the problem's text, and its model under the candidate's name.

    Args:
        problem: The problem, whose forward returns one tensor.
        eager_ms: Eager's latencies by direction; not needed where nothing is added.
        share: By which share of them it is to be slower, in either direction.
        pause: The statement that spends ``milliseconds``.
    """
    forward = share * eager_ms["forward"] if share else 0.0
    both = share * eager_ms.get("forward_backward", 0.0) if share else 0.0
    return problem.source + CANDIDATE.format(forward_ms=forward, backward_ms=max(0.0, both - forward), pause=pause)


@dataclass(frozen=True)
class One:
    """One series.

    Attributes:
        problem: Name of the problem.
        share: By how much the candidate is slower; 0 for the same.
        direction: ``forward`` or ``forward_backward``.
        evaluation: Number of the evaluation, from 0.
        ratio: Median of the paired ratios, eager over candidate.
        low: Where its 95 % interval begins.
        high: Where it ends.
        pairs: Pairs of calls.
        eager_ms: Eager's median.
        candidate_ms: The candidate's.
    """

    problem: str
    share: float
    direction: str
    evaluation: int
    ratio: float
    low: float
    high: float
    pairs: int
    eager_ms: float
    candidate_ms: float

    @classmethod
    def of(cls, problem: str, share: float, direction: str, evaluation: int, series: Series) -> One:
        """What a series of the harness says."""
        found = series.speedups[EAGER]
        pairs = len(series.candidate.samples_ms)
        times = series.eager.median_ms, series.candidate.median_ms
        return cls(problem, share, direction, evaluation, *found, pairs, *times)

    @property
    def interval(self) -> Interval:
        """The ratio with its interval."""
        return Interval(self.ratio, self.low, self.high)

    @property
    def is_narrow(self) -> bool:
        """Whether the whole interval is narrower than half of what counts as the same."""
        return self.high - self.low < PRECISION * self.ratio


@dataclass(frozen=True)
class Summary:
    """The series of one problem, candidate and direction together.

    Attributes:
        verdicts: How many were SAME, FASTER, ...
        ratio: Median of the ratios.
        low: The least that an interval reaches to.
        high: The most.
        narrow: How many intervals are narrow (see ``One.is_narrow``).
        missing: How many intervals do not hold what the ratio is by construction; None where that is not exact.
        errors: How many verdicts are mistaken: for the same FASTER and SLOWER, for what is slower by more than counts
            as the same all but SLOWER, for what is slower by less FASTER, and of a narrow interval all but SAME.
        holds: Whether there are no more of them than may be: of the same as many as ``STATED`` allows, else none.
    """

    verdicts: dict[SpeedVerdict, int]
    ratio: float
    low: float
    high: float
    narrow: int
    missing: int | None
    errors: int
    holds: bool


def at_least(successes: int, total: int, share: float) -> float:
    """The probability of at least so many successes among ``total``, each of this probability (binomial)."""
    return sum(math.comb(total, k) * share**k * (1 - share) ** (total - k) for k in range(successes, total + 1))


def may_be_chance(errors: int, total: int) -> bool:
    """Whether so many errors, or more, would be no rarer than 1 in 20 where each has the probability ``STATED``."""
    return at_least(errors, total, STATED) >= 0.05


def is_mistaken(one: One) -> bool:
    """Whether a verdict is wrong; see ``Summary.errors``."""
    verdict = one.interval.verdict
    if one.share == 0:
        return verdict in (SpeedVerdict.FASTER, SpeedVerdict.SLOWER)
    if one.share > SAMENESS:
        return verdict is not SpeedVerdict.SLOWER
    return verdict is SpeedVerdict.FASTER or (one.is_narrow and verdict is not SpeedVerdict.SAME)


def summary(series: Sequence[One]) -> Summary:
    """Count the verdicts of some series, at least one, of one share."""
    verdicts = [one.interval.verdict for one in series]
    share = series[0].share
    errors = sum(map(is_mistaken, series))
    return Summary(
        {verdict: verdicts.count(verdict) for verdict in SpeedVerdict},
        statistics.median(one.ratio for one in series),
        min(one.low for one in series),
        max(one.high for one in series),
        sum(one.is_narrow for one in series),
        sum(not one.low <= 1 <= one.high for one in series) if share == 0 else None,
        errors,
        may_be_chance(errors, len(series)) if share == 0 else errors == 0,
    )


def name_of(share: float) -> str:
    """A candidate's name: ``same``, or ``3 % slower``."""
    return f"{share * 100:g} % slower" if share else "same"


def summary_table(found: Sequence[One]) -> tuple[str, bool]:
    """A row for each problem, candidate and direction, and one for each candidate; and whether all hold."""
    header = ["problem", "candidate", "direction", "series", *SpeedVerdict, "errors"]
    header += ["intervals without 1", "narrower than 0.5 %", "ratio", "widest", "by construction", "holds"]
    groups: dict[tuple[str, float, str], list[One]] = {}
    for one in found:
        groups.setdefault((one.problem, one.share, one.direction), []).append(one)
    for share in dict.fromkeys(one.share for one in found):
        groups["all", share, "both"] = [one for one in found if one.share == share]
    rows, holding = [], True
    for (problem, share, direction), series in groups.items():
        told = summary(series)
        holding = holding and told.holds
        rows.append(
            [
                problem,
                name_of(share),
                direction,
                len(series),
                *told.verdicts.values(),
                f"{told.errors} ({told.errors / len(series):.1%})",
                None if told.missing is None else f"{told.missing} ({told.missing / len(series):.1%})",
                told.narrow,
                f"{told.ratio:.4f}",
                f"[{told.low:.4f}, {told.high:.4f}]",
                f"{1 / (1 + share):.4f}",
                told.holds,
            ]
        )
    return table(header, rows), holding


def series_table(found: Sequence[One]) -> str:
    """A row for every series."""
    header = ["problem", "candidate", "direction", "evaluation", "ratio", "interval", "pairs", "eager ms", "verdict"]
    rows = [
        [
            one.problem,
            name_of(one.share),
            one.direction,
            one.evaluation + 1,
            f"{one.ratio:.4f}",
            f"[{one.low:.4f}, {one.high:.4f}]",
            one.pairs,
            f"{one.eager_ms:.3f}",
            one.interval.verdict,
        ]
        for one in found
    ]
    return table(header, rows)


class RepeatingJudge(CandidateJudge):
    """The harness's judge; where it times a candidate, it does so as often as it is asked to.

    Attributes:
        wants_more: Called before each further series; whether there is to be one.
        on_series: Called with each series and its direction, as soon as it is there.
    """

    wants_more: Callable[[], bool]
    on_series: Callable[[str, Series], object]

    def _time(
        self, target: TimingTarget, results: list[TrialResult], worker: WorkerHandle, clock: Clock
    ) -> dict[str, Any]:
        assert self._baseline is not None
        with SpeedTimer(target, worker, clock, self._baseline, self._stages) as timing:
            try:
                outcome: TimingResult = timing.run()
                wrong = [audit for audit in outcome.audits if audit.failed]
                if wrong:
                    return self._summary(wrong[:1])
                for name, series in outcome.series.items():
                    self.on_series(name, series)
                while self.wants_more():
                    for name, series in timing.again().items():
                        self.on_series(name, series)
            except BaselineError as error:
                return {"message": f"speed was not measured: {error}"}
        return outcome.fields()


@dataclass(frozen=True)
class Wanted:
    """How often a candidate is to be timed.

    Attributes:
        repeats: Evaluations.
        series: Series of each.
        budget: What they may take; one evaluation with one series there is in any case.
    """

    repeats: int
    series: int
    budget: Budget


def series_of(
    session: Session,
    problem: Problem,
    case: str,
    share: float,
    text: str,
    folder: Path,
    wanted: Wanted,
) -> tuple[list[One], list[EvaluationRecord]]:
    """Judge a candidate as often as is wanted; its series, and the records of evaluations that came to none.

    Args:
        session: Where; it must have a baseline.
        problem: The problem.
        case: The case's name.
        share: By how much the candidate is slower.
        text: Its source.
        folder: Where the file is put.
        wanted: How often.

    Raises:
        ProblemError: The problem does not run.
    """
    candidate = written(problem, folder / f"{problem.name}_{round(share * 1e5)}.py", text)
    found: list[One] = []
    failed: list[EvaluationRecord] = []
    for number in range(wanted.repeats):
        if number and wanted.budget.is_spent:
            break
        taken: list[One] = []

        def add(direction: str, series: Series, taken: list[One] = taken, number: int = number) -> None:
            one = One.of(problem.name, share, direction, number, series)
            taken.append(one)
            say(
                f"{one.problem}, {name_of(share)}, {direction}, evaluation {number + 1}: {one.ratio:.4f} "
                f"[{one.low:.4f}, {one.high:.4f}] {one.interval.verdict}, {one.pairs} pairs, "
                f"{one.candidate_ms:.3f} and {one.eager_ms:.3f} ms"
            )

        def more(taken: list[One] = taken) -> bool:
            rounds = len(taken) // len({one.direction for one in taken})
            return rounds < wanted.series and not wanted.budget.is_spent

        policy = Policy(session.device, new_secret(), LIMITS)
        judge = RepeatingJudge(candidate, policy, session.surroundings, session.workers, baseline=session.baseline)
        judge.wants_more, judge.on_series = more, add
        with contextlib.closing(judge):
            record = judge.evaluate(case, problem.case(case), trials=1)
        found += taken
        if record.status is not Status.PASSED or not taken:
            failed.append(record)
            say(f"{problem.name}, {name_of(share)}: {record.status}: {record.message}")
        elif record.message:
            say(f"{problem.name}, {name_of(share)}: {record.message}")
    return found, failed


def run(
    session: Session, problems: Sequence[Problem], options: argparse.Namespace, pause: str, found: list[One]
) -> list[EvaluationRecord]:
    """Time everything that the options ask for; series go to ``found`` as they come.

    Returns:
        The records of evaluations that did not get so far.
    """
    budget = Budget(options.budget_s)
    shares = [0.0, *(percent / 100 for percent in options.slower)]
    failed: list[EvaluationRecord] = []
    tasks = [(problem, share) for problem in problems for share in shares]
    weights = [
        options.slower_repeats * options.slower_series if share else options.repeats * options.series
        for _, share in tasks
    ]
    with tempfile.TemporaryDirectory() as folder:
        latencies: dict[str, dict[str, float]] = {}
        for number, (problem, share) in enumerate(tasks):
            if budget.is_spent:
                say(f"{problem.name}, {name_of(share)}: left out, the budget is spent")
                continue
            part = budget.part(weights[number] / sum(weights[number:]))
            repeats, series = (
                (options.slower_repeats, options.slower_series) if share else (options.repeats, options.series)
            )
            eager_ms = latencies.get(problem.name, {})
            if share and not eager_ms:
                say(f"{problem.name}, {name_of(share)}: left out, eager's latency is not known")
                continue
            text = source(problem, eager_ms, share, pause)
            wanted = Wanted(repeats, series, part)
            taken, wrong = series_of(session, problem, options.case, share, text, Path(folder), wanted)
            found += taken
            failed += wrong
            if not share:
                latencies[problem.name] = {
                    name: statistics.median(one.eager_ms for one in taken if one.direction == name)
                    for name in dict.fromkeys(one.direction for one in taken)
                }
            save(options.json, as_json(session, options, found, failed))
    return failed


def as_json(
    session: Session, options: argparse.Namespace, found: Sequence[One], failed: Sequence[EvaluationRecord]
) -> dict[str, Any]:
    """Everything, for a file."""
    return {
        "case": options.case,
        "environment": session.surroundings.environment,
        "series": [{**asdict(one), "verdict": one.interval.verdict, "mistaken": is_mistaken(one)} for one in found],
        "failed": [asdict(record) for record in failed],
    }


def arguments() -> argparse.ArgumentParser:
    """The script's options."""
    made = parser(__doc__)
    made.add_argument("problems", nargs="*", help="names or files of problems (default: all)")
    made.add_argument("--case", default="full")
    made.add_argument("--repeats", type=count, default=30, help="evaluations of `same` (default: 30)")
    made.add_argument("--series", type=count, default=1, help="series of each of them (default: 1)")
    made.add_argument(
        "--slower", type=positive, nargs="*", default=[3.0, 0.5], metavar="PERCENT", help="(default: 3 0.5)"
    )
    made.add_argument("--slower-repeats", type=count, default=3, help="evaluations of each that is slower (default: 3)")
    made.add_argument("--slower-series", type=count, default=1, help="series of each of them (default: 1)")
    return made


def main() -> int:
    """Run from the command line; the exit code."""
    options = arguments().parse_args()

    def work() -> int:
        root = project_root(options.root)
        problems = [find_problem(root, name) for name in options.problems or problem_paths(root)]
        for problem in problems:
            problem.case(options.case)
        found: list[One] = []
        try:
            with session_on_gpu(options) as session:
                save(options.json, as_json(session, options, (), ()))
                per_ms = cycles_per_ms()
                say(f"{per_ms:.0f} cycles in a millisecond")
                failed = run(session, problems, options, device_pause(per_ms), found)
        finally:  # what there is by then is worth its GPU time
            text, holds = summary_table(found)
            if found:
                print(f"{text}\n{series_table(found)}", flush=True)
        return 0 if found and holds and not failed else 1

    return program(work)


if __name__ == "__main__":
    sys.exit(main())
