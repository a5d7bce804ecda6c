"""Reports a benchmark run as Markdown and JSON, and compares two runs of it.

Some records come from files by others. The report shows ``-`` for a value that is missing or no
number.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from harness.project.cases import CUSTOM_CASE
from harness.records.json_values import plain
from harness.records.record import EvaluationRecord, Status
from harness.report import scores as score_rows
from harness.report.comparison import DIRECTIONS, WORDS
from harness.report.scores import percent, significant
from harness.system.text import one_line, shortened
from harness.timing.scores import MOST, Score, floor_share, interval, mapping, number, ratios, samples, score
from harness.timing.statistics import measured

EAGER = "eager"
#: Keys of a direction's samples that are not names of baselines.
_OWN_SIDES = ("candidate", "uncertified")
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
#: Maximum depth of a record's objects to read, and maximum length of a message in a cell.
_DEPTH, _CELL = 6, 120
#: Share of intervals that must overlap so that two runs agree.
ACCEPTANCE = 0.95


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


class Agreement(NamedTuple):
    """One figure of two runs.

    Attributes:
        problem: Name of the problem.
        solution: Name of the solution.
        case: Name of the case.
        direction: ``forward`` or ``forward_backward``.
        quantity: ``candidate`` for its latency in milliseconds, ``over NAME`` for the speedup over
            a baseline.
        before: Figure of the first run, or None.
        after: Figure of the second run, or None.
    """

    problem: str
    solution: str
    case: str
    direction: str
    quantity: str
    before: Figure | None
    after: Figure | None

    @property
    def overlaps(self) -> bool | None:
        """Whether the 95 % intervals overlap; None if one of them is unknown."""
        match (self.before, self.after):
            case (
                Figure(low=float(low), high=float(high)),
                Figure(low=float(other_low), high=float(other_high)),
            ):
                return low <= other_high and other_low <= high
        return None


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
    names = _baselines(records)
    lines = [f"# {_escaped(title)}", "", "Made with", "", f"    {one_line(command)}", ""]
    lines += [f"in {seconds:.1f} s.", ""] if seconds is not None else []
    environment = [(name, ", ".join(values)) for name, values in _environment(records).items()]
    lines += _section("Environment", ("what", "value"), environment)
    state = [(name, *(stages[stage] for stage in _STAGES)) for name, stages in _device_state(records).items()]
    if state:
        lines += _section("The device around timing", ("what", *_STAGES), state)
    for direction in _directions(records):
        rows = [_row(record, names, direction) for record in records]
        lines += _section(WORDS[direction].capitalize(), _header(names), [_cells(row, names) for row in rows])
    lines += [
        "Latencies in ms: medians with their 95 % intervals. Speedups: medians of paired ratios, baseline over "
        "candidate, with theirs. The floor is the speed of light: the least time in which the device moves the bytes "
        "or does the flops that cannot be avoided. Peak memory without inputs and cotangents, in GiB.",
        "",
    ]
    lines += [f"- {_escaped(note)}" for note in _notes(records)]
    lines += [""] if lines[-1] else []
    if modes := list(_modes(records)):
        header = ("solution", "case", "direction", "mode", "candidate ms", "eager ms", "empty call ms", "failure")
        lines += _section("Short calls (by the word of each process)", header, [_mode_cells(one) for one in modes])
    found = scores(records)
    if found:
        lines += _section("Scores", score_rows.HEADER, map(score_rows.columns, found))
        lines += _section("fast_p", score_rows.CURVE_HEADER, map(score_rows.curve_columns, found))
        lines += [f"- {_escaped(note)}" for note in score_rows.NOTES]
    return "\n".join(lines).rstrip("\n") + "\n"


def as_json(
    records: Sequence[EvaluationRecord], command: str, seconds: float | None = None, title: str = "Benchmark"
) -> dict[str, Any]:
    """Returns the report as one JSON object.

    A figure is a list of the values of ``Figure``, and an unknown value is None.
    """
    names = _baselines(records)
    report = {
        "title": title,
        "command": command,
        "seconds": seconds,
        "environment": _environment(records),
        "device_state": _device_state(records),
        "directions": {
            direction: [asdict(_row(record, names, direction)) for record in records]
            for direction in _directions(records)
        },
        "notes": _notes(records),
        "modes": [one._asdict() for one in _modes(records)],
        "scores": [asdict(one) for one in scores(records)],
    }
    cleaned: dict[str, Any] = plain(report)
    return cleaned


def overlap(before: Sequence[EvaluationRecord], after: Sequence[EvaluationRecord]) -> list[Agreement]:
    """Pairs the figures of two runs: the candidates' latencies and speedups over each baseline.

    If a run contains a name twice, the last record counts. The result includes figures that only
    one run has.
    """
    first, second = _figures(before), _figures(after)
    return [Agreement(*key, first.get(key), second.get(key)) for key in dict.fromkeys([*first, *second])]


def agreement_as_json(rows: Sequence[Agreement]) -> list[dict[str, Any]]:
    """Returns the compared figures as JSON objects."""
    cleaned: list[dict[str, Any]] = plain([{**row._asdict(), "overlaps": row.overlaps} for row in rows])
    return cleaned


def markdown_agreement(rows: Sequence[Agreement]) -> str:
    """Formats how many figures of two runs agree: a sentence for each quantity, then a table."""
    lines = ["## Do two runs agree?", ""]
    for quantity in dict.fromkeys(row.quantity for row in rows):
        verdicts = [row.overlaps for row in rows if row.quantity == quantity]
        known = [verdict for verdict in verdicts if verdict is not None]
        what = "latency of candidates" if quantity == "candidate" else f"speedup {quantity}"
        words = f"{what}: of {len(known)} figures {sum(known)} have 95 % intervals that overlap"
        if known:
            accepted = sum(known) >= ACCEPTANCE * len(known)
            words += f" ({percent(sum(known) / len(known))}; {percent(ACCEPTANCE)} are asked for: "
            words += "accepted)" if accepted else "not accepted)"
        if missing := len(verdicts) - len(known):
            words += f"; {missing} cannot be compared, since a run has no interval there"
        lines.append(f"- {_escaped(words)}")
    words_of = {True: "yes", False: "NO", None: "-"}
    cells = [
        (
            _solution(row.problem, row.solution),
            row.case,
            WORDS[row.direction],
            "candidate ms" if row.quantity == "candidate" else row.quantity,
            *(_figure_text(figure, "" if row.quantity == "candidate" else "x") for figure in (row.before, row.after)),
            words_of[row.overlaps],
        )
        for row in rows
    ]
    lines += [""] if rows else ["There is nothing to compare.", ""]
    header = ("solution", "case", "direction", "what", "before", "after", "overlap")
    return "\n".join([*lines, *_table(header, cells)]) + "\n"


def _baselines(records: Iterable[EvaluationRecord]) -> list[str]:
    """Returns the names of all baselines, eager first, then in the order of appearance."""
    found = [EAGER]
    for record in records:
        found += record.baselines
        found += [side for sides in record.samples.values() for side in mapping(sides)]
    return [name for name in dict.fromkeys(found) if name not in _OWN_SIDES]


def _directions(records: Iterable[EvaluationRecord]) -> list[str]:
    """Returns the directions to show, with the backward only if a record has data for it."""
    fields = (field for record in records for field in (record.samples, record.floor, record.modes))
    return list(DIRECTIONS) if any(mapping(field.get(DIRECTIONS[1])) for field in fields) else [DIRECTIONS[0]]


def scores(records: Sequence[EvaluationRecord]) -> list[Score]:
    """Scores the records over eager and over every other baseline with timings."""
    timed = {side for record in records for sides in record.samples.values() for side in mapping(sides)}
    names = [name for name in _baselines(records) if name == EAGER or name in timed]
    return [score(records, name, direction) for direction in _directions(records) for name in names] if records else []


def _row(record: EvaluationRecord, names: Sequence[str], direction: str) -> BenchmarkRow:
    latency = {side: one for side in ("candidate", *names) if (one := _latency(record, side, direction))}
    speedup = {name: one for name in names if (one := _speedup(record, name, direction))}
    floor = mapping(record.floor.get(direction))
    share = floor_share(record, direction)
    peak = mapping(record.peak_bytes.get(direction))
    return BenchmarkRow(
        record.problem,
        _solution(record.problem, record.solution),
        _case(record),
        str(record.status),
        "" if "candidate" in latency else _why(record, direction),
        latency,
        speedup,
        number(floor.get("floor_ms")),
        _words(floor.get("bound")),
        None if share is None else Figure(*share),
        {side: size for side in peak if (size := number(peak[side])) is not None},
    )


def _solution(problem: str, solution: str) -> str:
    return solution if solution.startswith(f"{problem}/") else f"{solution} on {problem}"


def _case(record: EvaluationRecord) -> str:
    if record.case != CUSTOM_CASE or not record.constants:
        return record.case
    return " ".join([record.case, *(f"{name}={value!r}" for name, value in record.constants.items())])


def _latency(record: EvaluationRecord, side: str, direction: str) -> Figure | None:
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


def _speedup(record: EvaluationRecord, baseline: str, direction: str) -> Figure | None:
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
        return "not timed: the CPU emulator has no speed"
    if record.policy.get("forward_only") and direction == "forward_backward":
        return "not timed: judged forward only"
    return ": ".join(["not timed", *of_direction[:1], *(about_speed[:1] if not of_direction else [])])


def _header(names: Sequence[str]) -> tuple[str, ...]:
    sides = [f"{side} ms" for side in ("candidate", *names)]
    floor = ("share of floor", "floor ms (bound by)")
    return ("solution", "case", *sides, *(f"over {name}" for name in names), *floor, "peak GiB", "eager's peak GiB")


def _cells(row: BenchmarkRow, names: Sequence[str]) -> tuple[str, ...]:
    own = _figure_text(row.latency.get("candidate")) if not row.why else shortened(row.why, _CELL)
    bound = f" ({row.bound})" if row.bound else ""
    return (
        row.solution,
        row.case,
        own,
        *(_figure_text(row.latency.get(name)) for name in names),
        *(_figure_text(row.speedup.get(name), "x") for name in names),
        "-" if row.share is None else percent(row.share.value),
        "-" if row.floor_ms is None else significant(row.floor_ms, 4) + bound,
        *(
            significant(row.peak_bytes[side] / 2**30, 3) if side in row.peak_bytes else "-"
            for side in ("candidate", EAGER)
        ),
    )


def _figure_text(figure: Figure | None, unit: str = "") -> str:
    """Formats a latency as ``5.370 [5.362, 5.381]``, or a speedup with the unit x."""
    if figure is None:
        return "-"
    words = significant(figure.value, 4) + unit
    if figure.low is not None and figure.high is not None:
        words += f" [{significant(figure.low, 4)}, {significant(figure.high, 4)}]"
    return words + (" (kept)" if figure.is_kept else "")


def _figures(records: Iterable[EvaluationRecord]) -> dict[tuple[str, str, str, str, str], Figure | None]:
    """Returns the figures of a run by problem, solution, case, direction and quantity."""
    found: dict[tuple[str, str, str, str, str], Figure | None] = {}
    for record in records:
        names = _baselines([record])
        for direction in DIRECTIONS:
            key = (record.problem, record.solution, _case(record), direction)
            if (latency := _latency(record, "candidate", direction)) is not None:
                found[(*key, "candidate")] = latency
            for name in names:
                if (speedup := _speedup(record, name, direction)) is not None:
                    found[(*key, f"over {name}")] = speedup
    return found


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
                name = _solution(record.problem, record.solution)
                failure = _words(about.get("failure"))
                yield _Mode(name, _case(record), direction, mode, candidate, eager, overhead, failure)


def _mode_cells(one: _Mode) -> tuple[str, ...]:
    values = (one.candidate_ms, one.eager_ms, one.overhead_ms)
    figures = ("-" if value is None else significant(value, 4) for value in values)
    return (one.solution, one.case, WORDS[one.direction], one.mode, *figures, shortened(one.failure, _CELL) or "-")


def _notes(records: Iterable[EvaluationRecord]) -> list[str]:
    """Returns the notes for the tables, each once with all the candidates that it applies to."""
    found: dict[str, list[str]] = {}
    for record in records:
        for note in _notes_on(record):
            found.setdefault(note, []).append(f"{_solution(record.problem, record.solution)} {_case(record)}")
    return [f"{', '.join(dict.fromkeys(labels))}: {note}" for note, labels in found.items()]


def _notes_on(record: EvaluationRecord) -> Iterator[str]:
    if record.status is Status.PASSED:  # the table's cell says why a speed does not count
        notes = (line.removeprefix("note: ") for line in record.message.splitlines() if line.startswith("note: "))
        yield from (shortened(note, _CELL) for note in notes if not note.startswith("speed ("))
    for direction in DIRECTIONS:
        share = floor_share(record, direction)
        if share is not None and share.ratio > 1:
            yield (
                f"{WORDS[direction]}: below the floor ({percent(share.ratio)} of the speed of light): it leaves out "
                "work that the floor counts, or the floor is wrong"
            )
    for name, about in ((name, mapping(value)) for name, value in record.baselines.items()):
        if failure := _words(about.get("failure")):
            yield f"{name} could not be timed: {failure}"
        if note := _words(about.get("note")):
            yield f"{name}: {note}"
        if (prepare_s := number(about.get("prepare_s"))) is not None:
            yield f"{name} took {prepare_s:.1f} s to compile"
        if kept_from := _words(about.get("kept_from")):
            yield f"{name} was not timed with it: its latencies are those of record {kept_from}"
    if flags := _words(record.device_state.get("flags")):
        yield f"the device was not stable: {flags}"


def _environment(records: Iterable[EvaluationRecord]) -> dict[str, list[str]]:
    """Returns the environment of the records, with all values where they differ."""
    found: dict[str, dict[str, None]] = {name: {} for name in _ENVIRONMENT}
    for record in records:
        others = {key: value for key, value in record.device_state.items() if key not in (*_STAGES, "flags")}
        about = {
            **dict(_leaves(others)),
            **record.environment,
            "judged": record.created_at[:10],
            "device": record.device,
        }
        for name, value in about.items():
            if text := _words(value):
                found.setdefault(name, {})[text] = None
    return {_ENVIRONMENT.get(name, name): list(values) for name, values in found.items() if values}


def _device_state(records: Iterable[EvaluationRecord]) -> dict[str, dict[str, str]]:
    """Summarises the readings before, during and after timing.

    Each summary is the range over all records, or all distinct words.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    for record in records:
        for stage in _STAGES:
            for name, leaf in _leaves(record.device_state.get(stage)):
                found.setdefault(name or "state", {}).setdefault(stage, []).append(leaf)
    return {name: {stage: _range(stages.get(stage, [])) for stage in _STAGES} for name, stages in found.items()}


def _range(values: Sequence[Any]) -> str:
    numbers = [value for value in values if type(value) in (int, float) and abs(value) < MOST]
    if values and len(numbers) == len(values):
        low, middle, high = (f"{one:.6g}" for one in (min(numbers), statistics.median(numbers), max(numbers)))
        return low if low == high else f"{middle} ({low} to {high})"
    return ", ".join(dict.fromkeys(map(str, values))) or "-"


def _leaves(value: Any, name: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yields the plain values in a JSON object with their paths; items of a list share one path."""
    if isinstance(value, dict | list | tuple):
        inner = value.items() if isinstance(value, dict) else (("", one) for one in value)
        for key, one in inner if depth else ():
            yield from _leaves(one, " ".join(filter(None, (name, str(key)))), depth - 1)
    elif value is not None and value != "":
        yield name, value


def _words(value: Any) -> str:
    """Formats any value of a record in one line."""
    return one_line("; ".join(f"{name}: {leaf}" if name else str(leaf) for name, leaf in _leaves(value)))


def _section(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"## {title}", "", *_table(header, rows), ""]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_line(header), _line(["---"] * len(header)), *(_line(row) for row in rows)]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(_escaped, cells)) + " |"


def _escaped(text: str) -> str:
    """Escapes Markdown and HTML, because names and messages come from other people."""
    escaped = "".join(f"\\{one}" if one in "\\`*<|" else one for one in one_line(text))
    return escaped.replace("](", "]\\(")
