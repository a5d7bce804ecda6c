"""The report of a benchmark run as Markdown and JSON, and how far two runs of it agree.

Records also come from files that others wrote: what is missing there or no number is shown as ``-``.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from harness.project.problems import CUSTOM_CASE
from harness.records.record import EvaluationRecord, Status, plain
from harness.records.run_config import RunConfig
from harness.report import scores as score_rows
from harness.report.comparison import DIRECTIONS, WORDS
from harness.report.scores import percent, significant
from harness.system.text import one_line, shortened
from harness.timing.scores import MOST, Score, floor_share, interval, mapping, number, ratios, samples, score
from harness.timing.statistics import measured

EAGER = "eager"
#: What samples of a direction may stand under besides the names of baselines.
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
#: How deep an object of a record is looked into, and how much of a message a cell shows.
_DEPTH, _CELL = 6, 120
#: The share of intervals that must overlap for two runs to agree.
ACCEPTANCE = 0.95


class Figure(NamedTuple):
    """A median with its 95 % interval, where that is known; ``is_kept`` where it comes from an earlier record."""

    value: float
    low: float | None = None
    high: float | None = None
    is_kept: bool = False


@dataclass(frozen=True)
class BenchmarkRow:
    """One record in one direction.

    Attributes:
        problem: Name of the problem.
        solution: The solution, with its problem where its own name does not say that.
        case: The case; for a custom one with its constants.
        status: How the evaluation ended.
        why: Why there is no latency of the candidate, empty where there is one.
        latency: Milliseconds by side: ``candidate`` and the baselines.
        speedup: By baseline.
        floor_ms: What a call takes at least at the speed of light.
        bound: What the floor is bound by.
        share: The share of the floor that the candidate reaches.
        peak_bytes: The most device memory that a call held, by side.
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
        solution: The solution.
        case: The case.
        direction: ``forward`` or ``forward_backward``.
        quantity: ``candidate`` for its latency in milliseconds, ``over NAME`` for the speedup over a baseline.
        before: The figure of the first run, None where it has none.
        after: That of the second.
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
        """Whether the 95 % intervals have a point in common; None where one is not known."""
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
    """A run's report: what it ran on, a table for each direction, notes, scores, and the command.

    Args:
        records: The records of the run, in the order of the rows.
        command: The command line that made them.
        seconds: How long that took, None where it is not known.
        title: The heading.
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
    """The same as one object of JSON; a figure is a list as in ``Figure``, what is unknown None."""
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
    """Each figure of two runs side by side: the candidates' latencies, and their speedups over each baseline.

    What is named twice in a run counts as its last record says. A figure that only one run has is there as well.
    """
    first, second = _figures(before), _figures(after)
    return [Agreement(*key, first.get(key), second.get(key)) for key in dict.fromkeys([*first, *second])]


def agreement_as_json(rows: Sequence[Agreement]) -> list[dict[str, Any]]:
    """The same as objects of JSON."""
    cleaned: list[dict[str, Any]] = plain([{**row._asdict(), "overlaps": row.overlaps} for row in rows])
    return cleaned


def markdown_agreement(rows: Sequence[Agreement]) -> str:
    """How many of the figures of two runs agree: a sentence for each quantity, then the table."""
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
    """The names of all baselines, eager first, then in the order in which they appear."""
    found = [EAGER]
    for record in records:
        found += record.baselines
        found += [side for sides in record.samples.values() for side in mapping(sides)]
    return [name for name in dict.fromkeys(found) if name not in _OWN_SIDES]


def _directions(records: Iterable[EvaluationRecord]) -> list[str]:
    """The directions to show: a backward only where something is known of one."""
    fields = (field for record in records for field in (record.samples, record.floor, record.modes))
    return list(DIRECTIONS) if any(mapping(field.get(DIRECTIONS[1])) for field in fields) else [DIRECTIONS[0]]


def scores(records: Sequence[EvaluationRecord]) -> list[Score]:
    """The scores over every baseline that something was timed against; eager's in any case."""
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
    """A side's latency in milliseconds, from its samples where there are any."""
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
    """The speedup over a baseline, from samples where there are any, else as the record keeps it."""
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
    """Why a candidate has no latency."""
    lines = [line.removeprefix("note: ") for line in record.message.splitlines() if line.strip()]
    if record.status is not Status.PASSED:
        return ": ".join([str(record.status), *([record.rule] if record.rule else []), *lines[:1]])
    about_speed = [line for line in lines if "speed" in line]
    of_direction = [line for line in about_speed if f"({direction})" in line]
    if "uncertified" in mapping(record.samples.get(direction)):
        return "not timed: " + (of_direction[0] if of_direction else "not certified by the judge's clock")
    if record.device == "cpu":
        return "not timed: the CPU emulator has no speed"
    if direction == "forward_backward" and RunConfig.of(record).forward_only:
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
    """A latency as ``5.370 [5.362, 5.381]``, a speedup with the unit x."""
    if figure is None:
        return "-"
    words = significant(figure.value, 4) + unit
    if figure.low is not None and figure.high is not None:
        words += f" [{significant(figure.low, 4)}, {significant(figure.high, 4)}]"
    return words + (" (kept)" if figure.is_kept else "")


def _figures(records: Iterable[EvaluationRecord]) -> dict[tuple[str, str, str, str, str], Figure | None]:
    """The figures of a run by problem, solution, case, direction and quantity."""
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
    """What a record says of short calls in one direction and mode."""

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
    """What a reader should know before he believes the tables; what holds for several candidates once."""
    found: dict[str, list[str]] = {}
    for record in records:
        for note in _notes_on(record):
            found.setdefault(note, []).append(f"{_solution(record.problem, record.solution)} {_case(record)}")
    return [f"{', '.join(dict.fromkeys(labels))}: {note}" for note, labels in found.items()]


def _notes_on(record: EvaluationRecord) -> Iterator[str]:
    if record.status is Status.PASSED:  # why a speed does not count stands in its cell
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
    """What the records were made with; all values, where they disagree."""
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
    """Each reading before, during and after timing: the range over all records, or all words."""
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
    """The plain values in an object of JSON with their paths; a list's share one."""
    if isinstance(value, dict | list | tuple):
        inner = value.items() if isinstance(value, dict) else (("", one) for one in value)
        for key, one in inner if depth else ():
            yield from _leaves(one, " ".join(filter(None, (name, str(key)))), depth - 1)
    elif value is not None and value != "":
        yield name, value


def _words(value: Any) -> str:
    """What a record says somewhere, in one line."""
    return one_line("; ".join(f"{name}: {leaf}" if name else str(leaf) for name, leaf in _leaves(value)))


def _section(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"## {title}", "", *_table(header, rows), ""]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_line(header), _line(["---"] * len(header)), *(_line(row) for row in rows)]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(_escaped, cells)) + " |"


def _escaped(text: str) -> str:
    """Text in which nothing is Markdown or HTML: names and messages are other people's words."""
    escaped = "".join(f"\\{one}" if one in "\\`*<|" else one for one in one_line(text))
    return escaped.replace("](", "]\\(")
