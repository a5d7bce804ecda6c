"""Reports a benchmark run as Markdown and JSON.

Some records come from files by others. The report shows ``-`` for a value that is missing or no
number.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from harness.records.baselines import EAGER
from harness.records.json_values import plain
from harness.records.record import EvaluationRecord, Status
from harness.report import scores as score_rows
from harness.report.benchmark_rows import (
    CELL_CHARACTERS,
    baseline_names,
    case_label,
    cells_of,
    header_of,
    row_of,
    solution_label,
)
from harness.report.json_text import leaves, value_text
from harness.report.markdown_tables import escaped, section
from harness.report.scores import percent, significant
from harness.report.speed_comparison import DIRECTIONS, WORDS
from harness.system.text import one_line, shortened
from harness.timing.scores import MOST, Score, floor_share, mapping, number, score

_ENVIRONMENT = {
    "gpu": "GPU",
    "gpu_memory_gib": "GPU memory, GiB",
    "capability": "compute capability",
    "driver": "driver",
    "cuda": "CUDA",
    "torch": "torch",
    "compiler": "compiler",
    "python": "Python",
    "processor": "processor",
    "cores": "cores",
    "platform": "platform",
    "harness": "harness",
    "harness_code": "harness, digest of its code",
}
_STAGES = ("before", "during", "after")


def markdown(
    records: Sequence[EvaluationRecord], command: str, seconds: float | None = None, title: str = "Benchmark"
) -> str:
    """Formats a run's report: environment, a table for each direction, notes, scores, command.

    Args:
        records: Records of the run, in the order of the rows.
        command: Command line of the run.
        seconds: Duration of the run; None if it is unknown.
        title: Heading of the report.
    """
    names = baseline_names(records)
    lines = [f"# {escaped(title)}", "", "Made with", "", f"    {one_line(command)}", ""]
    lines += [f"in {seconds:.1f} s.", ""] if seconds is not None else []
    environment = [(name, ", ".join(values)) for name, values in _environment(records).items()]
    lines += section("Environment", ("what", "value"), environment)
    state = [(name, *(stages[stage] for stage in _STAGES)) for name, stages in _device_state(records).items()]
    if state:
        lines += section("The device around timing", ("what", *_STAGES), state)
    for direction in _directions(records):
        rows = [row_of(record, names, direction) for record in records]
        lines += section(WORDS[direction].capitalize(), header_of(names), [cells_of(row, names) for row in rows])
    lines += [
        "Latencies in ms: medians with 95 % intervals. Speedups: medians of paired ratios, baseline over "
        "candidate, with 95 % intervals. The floor is the speed of light: the least time in which the device "
        "can do the unavoidable work, the bytes moved or the flops. Peak memory in GiB, without inputs and "
        "cotangents.",
        "",
    ]
    lines += [f"- {escaped(note)}" for note in _notes(records)]
    lines += [""] if lines[-1] else []
    if modes := list(_modes(records)):
        header = ("solution", "case", "direction", "mode", "candidate ms", "eager ms", "empty call ms", "failure")
        lines += section("Short calls (as each process reports them)", header, [_mode_cells(one) for one in modes])
    found = scores(records)
    if found:
        lines += section("Scores", score_rows.HEADER, map(score_rows.columns, found))
        lines += section("fast_p", score_rows.CURVE_HEADER, map(score_rows.curve_columns, found))
        lines += [f"- {escaped(note)}" for note in score_rows.NOTES]
    return "\n".join(lines).rstrip("\n") + "\n"


def as_json(
    records: Sequence[EvaluationRecord], command: str, seconds: float | None = None, title: str = "Benchmark"
) -> dict[str, Any]:
    """Returns the report as one JSON object.

    A figure is a list of the values of ``Figure``, and an unknown value is None.
    """
    names = baseline_names(records)
    report = {
        "title": title,
        "command": command,
        "seconds": seconds,
        "environment": _environment(records),
        "device_state": _device_state(records),
        "directions": {
            direction: [asdict(row_of(record, names, direction)) for record in records]
            for direction in _directions(records)
        },
        "notes": _notes(records),
        "modes": [one._asdict() for one in _modes(records)],
        "scores": [asdict(one) for one in scores(records)],
    }
    cleaned: dict[str, Any] = plain(report)
    return cleaned


def _directions(records: Iterable[EvaluationRecord]) -> list[str]:
    """Returns the directions to show, with the backward only if a record has data for it."""
    fields = (field for record in records for field in (record.samples, record.floor, record.modes))
    return list(DIRECTIONS) if any(mapping(field.get(DIRECTIONS[1])) for field in fields) else [DIRECTIONS[0]]


def scores(records: Sequence[EvaluationRecord]) -> list[Score]:
    """Scores the records over eager and over every other baseline with timings."""
    timed = {side for record in records for sides in record.samples.values() for side in mapping(sides)}
    names = [name for name in baseline_names(records) if name == EAGER or name in timed]
    return [score(records, name, direction) for direction in _directions(records) for name in names] if records else []


class _Mode(NamedTuple):
    """A record's measurement of short calls in one direction and mode."""

    solution: str
    case: str
    direction: str
    mode: str
    candidate_ms: float | None
    eager_ms: float | None
    overhead_ms: float | None
    failure: str


def _modes(records: Iterable[EvaluationRecord]) -> Iterator[_Mode]:
    for record in records:
        for direction in DIRECTIONS:
            for mode, figures in mapping(record.modes.get(direction)).items():
                about = mapping(figures)
                candidate, eager, overhead = (
                    number(about.get(f"{what}_ms")) for what in ("candidate", "eager", "overhead")
                )
                name = solution_label(record.problem, record.solution)
                failure = value_text(about.get("failure"))
                yield _Mode(
                    name,
                    case=case_label(record),
                    direction=direction,
                    mode=mode,
                    candidate_ms=candidate,
                    eager_ms=eager,
                    overhead_ms=overhead,
                    failure=failure,
                )


def _mode_cells(one: _Mode) -> tuple[str, ...]:
    values = (one.candidate_ms, one.eager_ms, one.overhead_ms)
    figures = ("-" if value is None else significant(value, 4) for value in values)
    failure = shortened(one.failure, CELL_CHARACTERS) or "-"
    return (one.solution, one.case, WORDS[one.direction], one.mode, *figures, failure)


def _notes(records: Iterable[EvaluationRecord]) -> list[str]:
    """Returns the notes for the tables, each once with all the candidates that it applies to."""
    found: dict[str, list[str]] = {}
    for record in records:
        for note in _notes_on(record):
            found.setdefault(note, []).append(f"{solution_label(record.problem, record.solution)} {case_label(record)}")
    return [f"{', '.join(dict.fromkeys(labels))}: {note}" for note, labels in found.items()]


def _notes_on(record: EvaluationRecord) -> Iterator[str]:
    if record.status is Status.PASSED:  # the table's cell says why a speed does not count
        notes = (line.removeprefix("note: ") for line in record.message.splitlines() if line.startswith("note: "))
        yield from (shortened(note, CELL_CHARACTERS) for note in notes if not note.startswith("speed ("))
    for direction in DIRECTIONS:
        share = floor_share(record, direction)
        if share is not None and share.ratio > 1:
            yield (
                f"{WORDS[direction]}: below the floor ({percent(share.ratio)} of the speed of light): it "
                "leaves out work that the floor counts, or the floor is wrong"
            )
    for name, about in ((name, mapping(value)) for name, value in record.baselines.items()):
        if failure := value_text(about.get("failure")):
            yield f"{name} could not be timed: {failure}"
        if note := value_text(about.get("note")):
            yield f"{name}: {note}"
        if (prepare_s := number(about.get("prepare_s"))) is not None:
            yield f"{name} took {prepare_s:.1f} s to compile"
        if kept_from := value_text(about.get("kept_from")):
            yield f"{name} was not timed in this run: its latencies are those of record {kept_from}"
    if flags := value_text(record.device_state.get("flags")):
        yield f"the device was not stable: {flags}"


def _environment(records: Iterable[EvaluationRecord]) -> dict[str, list[str]]:
    """Returns the environment of the records, with all values where they differ."""
    found: dict[str, dict[str, None]] = {name: {} for name in _ENVIRONMENT}
    for record in records:
        others = {key: value for key, value in record.device_state.items() if key not in (*_STAGES, "flags")}
        about = {
            **dict(leaves(others)),
            **record.environment,
            "judged": record.created_at[:10],
            "device": record.device,
        }
        for name, value in about.items():
            if text := value_text(value):
                found.setdefault(name, {})[text] = None
    return {_ENVIRONMENT.get(name, name): list(values) for name, values in found.items() if values}


def _device_state(records: Iterable[EvaluationRecord]) -> dict[str, dict[str, str]]:
    """Summarises the readings before, during and after timing.

    Each summary is the range over all records, or all distinct words.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    for record in records:
        for stage in _STAGES:
            for name, leaf in leaves(record.device_state.get(stage)):
                found.setdefault(name or "state", {}).setdefault(stage, []).append(leaf)
    return {name: {stage: _range(stages.get(stage, [])) for stage in _STAGES} for name, stages in found.items()}


def _range(values: Sequence[Any]) -> str:
    numbers = [value for value in values if type(value) in (int, float) and abs(value) < MOST]
    if values and len(numbers) == len(values):
        low, middle, high = (f"{one:.6g}" for one in (min(numbers), statistics.median(numbers), max(numbers)))
        return low if low == high else f"{middle} ({low} to {high})"
    return ", ".join(dict.fromkeys(map(str, values))) or "-"
