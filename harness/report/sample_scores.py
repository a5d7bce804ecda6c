"""Formats the scores of samples: as tables, as JSON, as CSV, and as KernelBench's results."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any, TextIO

from rich.markup import escape

from harness.records.record import EvaluationRecord, Status
from harness.report.console import open_console
from harness.report.csv_cells import cell
from harness.report.scores import print_table, ratio_text, significant
from harness.report.speed_comparison import WORDS
from harness.timing.sample_scores import (
    DIRECTIONS,
    PS,
    UNJUDGED,
    Counting,
    Mean,
    SampleResult,
    SampleScore,
    Share,
    sample_scores,
)
from harness.timing.statistics import Interval

#: The file that KernelBench writes its results to.
RESULTS_FILE = "eval_results.json"
_NAME = re.compile(r"(?:(?P<before>.*)/)?sample_(?P<number>[0-9]{1,18})")
#: Statuses of candidates that KernelBench counts as not compiled.
_UNBUILT = (Status.BUILD_ERROR, Status.LOAD_ERROR)


def sample_name(model: str, level: str, problem: str, number: int) -> str:
    """Returns a sample's name, as records have it in ``solution``."""
    return "/".join([*filter(None, (model, level, problem)), f"sample_{number}"])


def results_of(records: Iterable[EvaluationRecord]) -> list[SampleResult]:
    """Groups records by sample. A solution that is no sample counts as its problem's next one.

    Only the newest text of a sample counts, under the newest policy, and the newest record of each
    case. Records come in order, the newest last.
    """
    grouped: dict[tuple[str, str], list[EvaluationRecord]] = {}
    for record in records:
        grouped.setdefault((record.solution, record.problem_path), []).append(record)
    results: list[SampleResult] = []
    others: Counter[tuple[str, str]] = Counter()
    for (name, problem_path), found in grouped.items():
        problem, level = found[0].problem, PurePath(problem_path).parent.name
        match = _NAME.fullmatch(name)
        path = (match["before"] or "").split("/") if match else []
        if match and path[-1:] == [problem]:
            model = "/".join(path[:-2] if path[-2:-1] == [level] else path[:-1])
            number = int(match["number"])
        else:
            model, number = "", others[level, problem]
            others[level, problem] += 1
        results.append(SampleResult(model, level, problem, number, _newest(found)))
    return results


def _newest(records: Sequence[EvaluationRecord]) -> tuple[EvaluationRecord, ...]:
    """Returns the newest record of each case, of those with the newest text and policy."""
    last = records[-1]
    cases: dict[str, EvaluationRecord] = {}
    for record in records:
        if record.digest == last.digest and record.policy == last.policy:
            cases[f"{record.case} {sorted(record.constants.items())}"] = record
    return tuple(cases.values())


def print_sample_scores(records: Iterable[EvaluationRecord], file: TextIO | None = None) -> None:
    """Prints the scores of records, by default on stdout."""
    results = results_of(records)
    scores = _without_repetitions(sample_scores(results))
    if not scores:
        return
    console = open_console(file)
    header = ("", "problems", "solved", "samples", "correct", "own kernel", *(f"pass@{k}" for k in scores[0].pass_at))
    rows = [
        (
            _title(one),
            *map(str, (one.problems, one.solved, one.samples, one.correct, one.own)),
            *(_percent(one.pass_at[k]) if k in one.pass_at else "-" for k in scores[0].pass_at),
        )
        for one in scores
    ]
    print_table(console, header, rows, ("own kernel", "problems", *header[:6:-1], "solved", "samples"))
    timed = [(one, direction) for one in scores for direction in DIRECTIONS if direction in one.fast]
    if timed:
        speed = ("", "direction", "timed", "geometric mean", *(f"fast_{p:g} best [low], mean" for p in PS))
        print_table(console, speed, [_speeds(one, direction) for one, direction in timed], (*speed[:3:-1], "timed"))
    for note in (*NOTES[: 1 + bool(timed)], *_conditions(scores)):
        console.print(escape(note))
    for status, words in _UNJUDGED.items():
        if found := sum(one.unjudged is status for one in results):
            console.print(f"{words}, so in no score: {found} of {len(results)} samples")


def _without_repetitions(scores: Sequence[SampleScore]) -> list[SampleScore]:
    """Leaves out the scores of own kernels where none or all of the passed samples have some."""
    passed = {(one.model, one.level): one.correct for one in scores if one.counting is Counting.PASSED}
    return [
        one
        for one in scores
        if one.counting is not Counting.OWN_KERNEL or 0 < one.correct < passed[one.model, one.level]
    ]


def _conditions(scores: Iterable[SampleScore]) -> Iterator[str]:
    """Yields the baseline, the precision and the clock of each way of counting."""
    for counting in dict.fromkeys(one.counting for one in scores):
        own = [one for one in scores if one.counting is counting]
        precision = ", ".join(dict.fromkeys(one.precision for one in own))
        clock = next((one.clock for one in own if one.clock), None)
        speed = f"speedup over {own[0].baseline}; {clock}" if clock else "no times"
        yield f"{counting}: {_COUNTED[counting]}; precision {precision}; {speed}"


#: Statuses that are no verdict on a sample, in words.
_UNJUDGED = dict(
    zip(UNJUDGED, ("interpreted", "unsupported on this machine", "not judged, since the harness failed"), strict=True)
)
#: What a sample must be to count as correct.
_COUNTED = {
    Counting.PASSED: "correct if it passed",
    Counting.OWN_KERNEL: "correct if it passed with work of its own kernels",
    Counting.KERNELBENCH: "correct if KernelBench's evaluator says so, of outputs alone",
}


#: Explanations that a reader of the tables needs.
NOTES = (
    "solved: problems with a correct sample. pass@k: mean over problems, estimated without bias "
    "(Chen et al. 2021), for the k that every problem has samples for; problems: those with a judged answer",
    "geometric mean: of the speedups over eager of the timed correct samples, with its 95 % interval. fast_p: share "
    "of all problems whose best sample is correct and over p times as fast as eager; low: by the lower ends of "
    "the intervals; mean: of the share of a problem's samples",
)


def as_json(records: Iterable[EvaluationRecord]) -> list[dict[str, Any]]:
    """Returns the scores as JSON objects with the fields of ``SampleScore``."""
    return [asdict(one) for one in sample_scores(results_of(records))]


def as_csv(records: Iterable[EvaluationRecord]) -> str:
    """Returns the scores as CSV, one row for each model, level, way of counting and direction."""
    scores = sample_scores(results_of(records))
    ks = sorted({k for one in scores for k in one.pass_at})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    conditions = ("model", "level", "counting", "baseline", "precision", "clock")
    counts = (*conditions, "problems", "solved", "samples", "unjudged", "correct", "own")
    fast = [f"fast_{p:g}_{part}" for p in PS for part in ("best", "low", "mean")]
    writer.writerow([*counts, *(f"pass@{k}" for k in ks), "direction", "timed", "mean", "mean_low", "mean_high", *fast])
    for one in scores:
        for direction in DIRECTIONS:
            shares = one.fast.get(direction, {})
            mean = one.mean.get(direction)
            writer.writerow(
                [
                    *(cell(getattr(one, name)) for name in counts),
                    *(one.pass_at.get(k) for k in ks),
                    *(direction, one.timed[direction]),
                    *((mean.ratio, mean.low, mean.high) if mean else (None,) * 3),
                    *(part for p in PS for part in shares.get(p, (None,) * 3)),
                ]
            )
    return out.getvalue()


def kernelbench_results(records: Iterable[EvaluationRecord]) -> dict[str, dict[str, Any]]:
    """Returns KernelBench's ``eval_results.json`` of each run, by ``MODEL/LEVEL``.

    A problem's key is the number that its name begins with; one without a number is left out.
    ``runtime`` is the median of a forward in milliseconds, and -1 where none was certified. Records
    with KernelBench's own verdict give that and its mean.
    """
    runs: dict[str, dict[str, Any]] = {}
    for one in results_of(records):
        number = re.match(r"\d+", one.problem)
        if number is None or one.unjudged is not None:
            continue
        run = runs.setdefault("/".join(filter(None, (one.model, one.level))), {})
        first = next((record for record in one.records if record.status is not Status.PASSED), one.records[0])
        counting = Counting.KERNELBENCH if any(record.kernelbench for record in one.records) else Counting.PASSED
        kind = "mean" if counting is Counting.KERNELBENCH else "median"
        told = (record.kernelbench.get("runtime_ms") if kind == "mean" else record.forward_ms for record in one.records)
        runtime = next((ms for ms in told if ms is not None), None) if one.speedups("forward", counting) else None
        entry = {
            "sample_id": one.number,
            "compiled": first.status not in _UNBUILT,
            "correctness": one.is_correct(counting),
            "metadata": {"status": str(first.status), "message": first.message, "record": first.record},
            "runtime": -1.0 if runtime is None else runtime,
            "runtime_stats": {} if runtime is None else {kind: runtime},
        }
        run.setdefault(str(int(number[0])), []).append(entry)
    return {name: dict(sorted(run.items(), key=lambda item: int(item[0]))) for name, run in runs.items()}


def _title(score: SampleScore) -> str:
    title = " ".join(filter(None, (score.model, score.level))) or "all"
    return title if score.counting is Counting.PASSED else f"{title}, {score.counting}"


def _speeds(score: SampleScore, direction: str) -> tuple[str, ...]:
    shares = (score.fast[direction][p] for p in PS)
    return (
        *(_title(score), WORDS[direction], str(score.timed[direction]), _mean_text(score.mean[direction])),
        *(f"{_percent(share.best)}{_low_text(share)}, {_percent(share.mean)}" for share in shares),
    )


def _mean_text(mean: Mean) -> str:
    if mean.low is None or mean.high is None:
        return f"{significant(mean.ratio, 4)}x"
    return ratio_text(Interval(mean.ratio, mean.low, mean.high))


def _low_text(share: Share) -> str:
    return "" if share.low is None else f" [{_percent(share.low)}]"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
