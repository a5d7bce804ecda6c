"""Compares records by speed on the same case and device, and tests the lead against noise.

Each record's latencies were measured in pairs with eager PyTorch. The comparison uses speedups over
eager, because a slow or fast phase of the machine affects both sides of a pair alike.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.errors import UsageError
from harness.records.identity import constants_key
from harness.records.record import EvaluationRecord, Status
from harness.records.rules import rules_text, weakened
from harness.records.run_config import RunConfig
from harness.system.text import one_line
from harness.timing.statistics import Interval, SpeedVerdict, measured, paired_ratios, ratio_of_medians

DIRECTIONS = ("forward", "forward_backward")
WORDS = {"forward": "forward", "forward_backward": "forward+backward"}


class ComparedRecord(NamedTuple):
    """A record under the name that the user knows."""

    label: str
    record: EvaluationRecord


class Winner(NamedTuple):
    """The fastest and the second of a group in one direction, with the ratio of their speedups."""

    label: str
    runner_up: str
    lead: Interval


@dataclass(frozen=True)
class Group:
    """Records of one case on one device.

    Attributes:
        title: Problem, case and device, and the solution if the comparison is between runs.
        entries: The entries, fastest first. Those that did not pass or have no speed come last, in
            the order named.
        leads: The fastest two by direction, if at least two have a speed.
        named: The entries in the order named.
        notes: Remarks about how far to trust the comparison.
    """

    title: str
    entries: tuple[ComparedRecord, ...]
    leads: dict[str, Winner]
    named: tuple[ComparedRecord, ...]
    notes: tuple[str, ...]

    def winner(self, direction: str) -> Winner | None:
        """Returns the fastest entry if its lead exceeds noise."""
        lead = self.leads.get(direction)
        return lead if lead is not None and lead.lead.verdict is SpeedVerdict.FASTER else None

    def regressions(self, share: float) -> Iterator[str]:
        """Yields a sentence for each entry that is slower than the first one by more than a share.

        An entry counts as slower only beyond noise: the whole interval of the ratio lies below
        ``1 - share``. An entry that did not pass while the first one did also counts.
        """
        first, *others = self.named
        for other in others:
            if first.record.status is Status.PASSED and other.record.status is not Status.PASSED:
                yield f"{self.title}: {other.label} is {other.record.status}, {first.label} passed"
            for direction in DIRECTIONS:
                theirs, own = speed_ratios(first.record, direction), speed_ratios(other.record, direction)
                if theirs and own and (found := ratio_of_medians(own, theirs).widened()).high < 1 - share:
                    yield (
                        f"{self.title}: {WORDS[direction]}: {other.label} is {_figures(found)} as fast as {first.label}"
                    )


def machines(records: Iterable[EvaluationRecord]) -> str:
    """Names the devices of records, each once."""
    return " and ".join(dict.fromkeys(machine(record) for record in records))


def machine(record: EvaluationRecord) -> str:
    """Names the device that measured a record: the GPU's name, or the emulator."""
    return record.environment.get("gpu", record.device) if record.device != "cpu" else "CPU emulator"


def group(title: str, entries: Sequence[ComparedRecord], force: bool) -> Group:
    """Compares records that answer the same question.

    Args:
        title: Description of the question.
        entries: The records, in the order named.
        force: Whether to compare records that differ in the question.

    Raises:
        UsageError: The records differ in device, case, problem or policy, and ``force`` is false.
    """
    differences = list(_differences(entries))
    if differences and not force:
        words = "; ".join(differences)
        raise UsageError(f"{title}: {words}: that comparison would not be fair; --force makes it anyway")
    if len({machine(record) for _, record in entries}) > 1:
        entries = [ComparedRecord(f"{label} on {machine(record)}", record) for label, record in entries]
    by_speed = sorted(entries, key=lambda entry: _order(entry.record))
    leads = {}
    for direction in DIRECTIONS:
        timed = [entry for entry in entries if speed_ratios(entry.record, direction)]
        timed.sort(key=lambda entry: -statistics.median(speed_ratios(entry.record, direction)))
        if len(timed) > 1:
            first, second = timed[:2]
            own, theirs = speed_ratios(first.record, direction), speed_ratios(second.record, direction)
            lead = ratio_of_medians(own, theirs).widened()
            leads[direction] = Winner(first.label, second.label, lead)
    return Group(title, tuple(by_speed), leads, tuple(entries), (*differences, *_software(entries)))


def lead_text(group: Group, direction: str) -> str:
    """Formats the sentence about a direction: the winner with its lead, or that there is none."""
    lead = group.leads[direction]
    figures = _figures(lead.lead)
    if group.winner(direction) is None:
        why = "which is no difference" if lead.lead.verdict is SpeedVerdict.SAME else "which may be noise"
        return f"{WORDS[direction]}: no winner: {lead.label} over {lead.runner_up} is {figures}, {why}"
    return f"{WORDS[direction]}: {lead.label} wins, {figures} as fast as {lead.runner_up}"


def _figures(interval: Interval) -> str:
    return f"{interval.ratio:.3f}x [{interval.low:.3f}, {interval.high:.3f}]"


def as_json(groups: Iterable[Group]) -> dict[str, Any]:
    """Returns the comparison as one JSON object."""
    return {"groups": [_group_object(one) for one in groups]}


def columns(entry: ComparedRecord) -> tuple[str, ...]:
    """Returns a row of the table.

    The cells are label and status, then latency with quartiles and speedup for each direction.
    """
    record = entry.record
    cells = [entry.label, str(record.status)]
    for direction in DIRECTIONS:
        latency = record.samples.get(direction, {}).get("candidate")
        ratios = speed_ratios(record, direction)
        if latency is None or not ratios:
            cells += ["-", "-"]
        else:
            over_eager = measured(ratios)
            cells += [
                f"{latency['median_ms']:.4g} [{latency['low_ms']:.4g}, {latency['high_ms']:.4g}]",
                f"{_figures(over_eager)} {over_eager.verdict}",
            ]
    return tuple(cells)


HEADER = ("candidate", "status", "forward ms [quartiles]", "over eager", "forward+backward ms", "over eager")


def markdown(groups: Iterable[Group]) -> str:
    """Formats the comparison as Markdown: a heading, a table and sentences for each group."""
    lines = []
    for one in groups:
        lines += [f"### {one.title}", "", _markdown_row(HEADER), _markdown_row(["---"] * len(HEADER))]
        lines += [_markdown_row(columns(entry)) for entry in one.entries]
        sentences = [lead_text(one, direction) for direction in one.leads] + [f"note: {note}" for note in one.notes]
        lines += ["", *(f"- {sentence}" for sentence in sentences), ""]
    return "\n".join(lines)


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(one_line(cell).replace("|", "\\|") for cell in cells) + " |"


def _group_object(one: Group) -> dict[str, Any]:
    leads = {}
    for direction, lead in one.leads.items():
        leads[direction] = {
            "first": lead.label,
            "second": lead.runner_up,
            "ratio": lead.lead.ratio,
            "interval": [lead.lead.low, lead.lead.high],
            "verdict": str(lead.lead.verdict),
            "winner": lead.label if lead.lead.verdict is SpeedVerdict.FASTER else None,
        }
    rows = []
    for label, record in one.entries:
        sides = {direction: record.samples.get(direction, {}).get("candidate") for direction in DIRECTIONS}
        latencies = {
            direction: {key: side[key] for key in ("median_ms", "low_ms", "high_ms")}
            for direction, side in sides.items()
            if side is not None
        }
        rows.append(
            {
                "candidate": label,
                "record": record.record,
                "case": record.case,
                "device": machine(record),
                "status": str(record.status),
                "latency": latencies,
                "speedup": record.speedup,
                "over_eager": {
                    direction: {"interval": [found.low, found.high], "verdict": str(found.verdict)}
                    for direction in DIRECTIONS
                    if (ratios := speed_ratios(record, direction)) and (found := measured(ratios))
                },
            }
        )
    return {"title": one.title, "rows": rows, "leads": leads, "notes": list(one.notes)}


def _differences(entries: Sequence[ComparedRecord]) -> Iterable[str]:
    questions = {
        "devices": [machine(record) for _, record in entries],
        "problems": [record.problem for _, record in entries],
        "cases": [record.case for _, record in entries],
    }
    for what, found in questions.items():
        if len(set(found)) > 1:
            yield f"different {what} ({', '.join(dict.fromkeys(found))})"
    if len({record.problem_digest for _, record in entries}) > 1 and len(set(questions["problems"])) == 1:
        yield "the problem's file has changed in between"
    if (
        len({json.dumps(constants_key(record), sort_keys=True) for _, record in entries}) > 1
        and len(set(questions["cases"])) == 1
    ):
        yield "different constants of the case"
    configs = [RunConfig.of(record) for _, record in entries]
    if len({config.forward_only for config in configs}) > 1:
        yield "some were judged forward only"
    weak = dict.fromkeys(rules_text(weakened(config.rules)) for config in configs)
    if len(weak) > 1:
        yield f"some were judged under weaker integrity rules ({'; '.join(filter(None, weak))})"


def _software(entries: Sequence[ComparedRecord]) -> Iterable[str]:
    for name in ("torch", "compiler", "harness", "harness_code", "cuda", "driver", "processor"):
        found = dict.fromkeys(record.environment.get(name, "unknown") for _, record in entries)
        if len(found) > 1:
            what = (
                "on machines with different processors"
                if name == "processor"
                else f"under different versions of {name}"
            )
            yield f"measured {what}: {', '.join(found)}"


def _order(record: EvaluationRecord) -> tuple[int, float]:
    """Returns the sort key of a record.

    The fastest comes first, by forward with backward if it was measured. Then come records without
    a speed, then records that did not pass.
    """
    if record.status is not Status.PASSED:
        return (2, 0.0)
    for direction in reversed(DIRECTIONS):
        if speed_ratios(record, direction):
            return (0, -statistics.median(speed_ratios(record, direction)))
    return (1, 0.0)


def speed_ratios(record: EvaluationRecord, direction: str) -> list[float]:
    """Returns the paired ratios eager over candidate of a record that passed, or none."""
    sides = record.samples.get(direction, {})
    if record.status is not Status.PASSED or not {"candidate", "eager"} <= sides.keys():
        return []
    mine, eager = sides["candidate"]["samples_ms"], sides["eager"]["samples_ms"]
    return paired_ratios(mine, eager) if len(mine) > 1 else []


def direction_of(record: EvaluationRecord) -> str:
    """Returns the direction whose time counts: with the backward if the record judges gradients."""
    return DIRECTIONS[1] if record.gradients else DIRECTIONS[0]


def add_ratios(ratios: MutableMapping[str, list[float]], records: Sequence[EvaluationRecord]) -> bool:
    """Adds the paired ratios of records by case; returns False if one failed or has no time, or there are none."""
    for record in records:
        found = speed_ratios(record, direction_of(record))
        if not found:
            return False
        ratios.setdefault(record.case, []).extend(found)
    return bool(records)
