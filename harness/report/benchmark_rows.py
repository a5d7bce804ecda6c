"""Computes and formats the rows of a benchmark's tables: one record in one direction.

Some records come from files by others. A row shows ``-`` for a value that is missing or no number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.project.cases import CUSTOM_CASE
from harness.records.baselines import EAGER
from harness.records.record import EvaluationRecord, Status
from harness.records.run_config import RunConfig
from harness.report.json_text import value_text
from harness.report.scores import percent, significant
from harness.system.text import shortened
from harness.timing.scores import floor_share, interval, mapping, number, ratios, samples
from harness.timing.statistics import measured

#: Maximum length of a message in a cell.
CELL_CHARACTERS = 120
#: Keys of a direction's samples that are not names of baselines.
_OWN_SIDES = ("candidate", "uncertified")


class Figure(NamedTuple):
    """A median with its 95 % interval, if that is known.

    ``is_kept`` means that it comes from an earlier record.
    """

    value: float
    low: float | None = None
    high: float | None = None
    is_kept: bool = False


@dataclass(frozen=True)
class BenchmarkRow:
    """One record in one direction.

    Attributes:
        problem: Name of the problem.
        solution: Name of the solution, with its problem if the name does not contain it.
        case: Name of the case, with its constants for a custom case.
        status: Status of the evaluation.
        why: Reason why the candidate has no latency; empty if it has one.
        latency: Milliseconds by side: ``candidate`` and the baselines.
        speedup: Speedup by baseline.
        floor_ms: Least time of a call at the speed of light.
        bound: Resource that limits the floor.
        share: Share of the floor that the candidate reaches.
        peak_bytes: Peak device memory of a call, by side.
    """

    problem: str
    solution: str
    case: str
    status: str
    why: str
    latency: dict[str, Figure]
    speedup: dict[str, Figure]
    floor_ms: float | None
    bound: str
    share: Figure | None
    peak_bytes: dict[str, float]


def baseline_names(records: Iterable[EvaluationRecord]) -> list[str]:
    """Returns the names of all baselines, eager first, then in the order of appearance."""
    found = [EAGER]
    for record in records:
        found += record.baselines
        found += [side for sides in record.samples.values() for side in mapping(sides)]
    return [name for name in dict.fromkeys(found) if name not in _OWN_SIDES]


def row_of(record: EvaluationRecord, names: Sequence[str], direction: str) -> BenchmarkRow:
    """Computes a record's row in a direction, with the given baselines."""
    latency = {side: one for side in ("candidate", *names) if (one := latency_of(record, side, direction))}
    speedup = {name: one for name in names if (one := speedup_of(record, name, direction))}
    floor = mapping(record.floor.get(direction))
    share = floor_share(record, direction)
    peak = mapping(record.peak_bytes.get(direction))
    return BenchmarkRow(
        record.problem,
        solution=solution_label(record.problem, record.solution),
        case=case_label(record),
        status=str(record.status),
        why="" if "candidate" in latency else _why(record, direction),
        latency=latency,
        speedup=speedup,
        floor_ms=number(floor.get("floor_ms")),
        bound=value_text(floor.get("bound")),
        share=None if share is None else Figure(*share),
        peak_bytes={side: size for side in peak if (size := number(peak[side])) is not None},
    )


def solution_label(problem: str, solution: str) -> str:
    """Returns the solution's name, with its problem if the name does not contain it."""
    return solution if solution.startswith(f"{problem}/") else f"{solution} on {problem}"


def case_label(record: EvaluationRecord) -> str:
    """Returns the case's name, with its constants for a custom case."""
    if record.case != CUSTOM_CASE or not record.constants:
        return record.case
    return " ".join([record.case, *(f"{name}={value!r}" for name, value in record.constants.items())])


def latency_of(record: EvaluationRecord, side: str, direction: str) -> Figure | None:
    """Returns a side's latency in milliseconds, from its samples if there are any."""
    is_candidate = side == "candidate"
    if is_candidate and not _is_counted(record, direction):
        return None
    if found := samples(record, side, direction):
        return Figure(*measured(found))
    about = mapping(record.baselines.get(side))
    alone = {"forward": record.forward_ms, "forward_backward": record.forward_backward_ms}
    value = number(alone[direction] if is_candidate else about.get(f"{direction}_ms"))
    return None if value is None else Figure(value, is_kept=not is_candidate and "kept_from" in about)


def speedup_of(record: EvaluationRecord, baseline: str, direction: str) -> Figure | None:
    """Returns the speedup over a baseline, from samples if there are any, else from the record."""
    if not _is_counted(record, direction):
        return None
    if found := ratios(record, baseline, direction):
        return Figure(*measured(found))
    about = mapping(record.baselines.get(baseline))
    kept: Any = mapping(about.get("speedup")).get(direction)
    if kept is None and baseline == EAGER:
        kept = ((record.speedup or {}).get(direction), *record.speedup_interval.get(direction, ()))
    stored = interval(kept)
    return None if stored is None else Figure(*stored, is_kept="kept_from" in about)


def _is_counted(record: EvaluationRecord, direction: str) -> bool:
    return record.status is Status.PASSED and "uncertified" not in mapping(record.samples.get(direction))


def _why(record: EvaluationRecord, direction: str) -> str:
    """Explains why a candidate has no latency."""
    lines = [line.removeprefix("note: ") for line in record.message.splitlines() if line.strip()]
    if record.status is not Status.PASSED:
        return ": ".join([str(record.status), *([record.rule] if record.rule else []), *lines[:1]])
    about_speed = [line for line in lines if "speed" in line]
    of_direction = [line for line in about_speed if f"({direction})" in line]
    if "uncertified" in mapping(record.samples.get(direction)):
        return "not timed: " + (of_direction[0] if of_direction else "not certified by the judge's clock")
    if record.device == "cpu":
        return "not timed: the CPU emulator does not measure speed"
    if RunConfig.of(record).forward_only and direction == "forward_backward":
        return "not timed: judged forward only"
    return ": ".join(["not timed", *of_direction[:1], *(about_speed[:1] if not of_direction else [])])


def header_of(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the header of a table with the given baselines."""
    sides = [f"{side} ms" for side in ("candidate", *names)]
    floor = ("share of floor", "floor ms (bound by)")
    return ("solution", "case", *sides, *(f"over {name}" for name in names), *floor, "peak GiB", "eager's peak GiB")


def cells_of(row: BenchmarkRow, names: Sequence[str]) -> tuple[str, ...]:
    """Formats a row as cells below ``header_of`` of the same baselines."""
    own = figure_text(row.latency.get("candidate")) if not row.why else shortened(row.why, CELL_CHARACTERS)
    bound = f" ({row.bound})" if row.bound else ""
    return (
        row.solution,
        row.case,
        own,
        *(figure_text(row.latency.get(name)) for name in names),
        *(figure_text(row.speedup.get(name), "x") for name in names),
        "-" if row.share is None else percent(row.share.value),
        "-" if row.floor_ms is None else significant(row.floor_ms, 4) + bound,
        *(
            significant(row.peak_bytes[side] / 2**30, 3) if side in row.peak_bytes else "-"
            for side in ("candidate", EAGER)
        ),
    )


def figure_text(figure: Figure | None, unit: str = "") -> str:
    """Formats a latency as ``5.370 [5.362, 5.381]``, or a speedup with the unit x."""
    if figure is None:
        return "-"
    words = significant(figure.value, 4) + unit
    if figure.low is not None and figure.high is not None:
        words += f" [{significant(figure.low, 4)}, {significant(figure.high, 4)}]"
    return words + (" (kept)" if figure.is_kept else "")
