"""Writes the report: renders the template and puts style, script and drawings into one file."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment
from markupsafe import Markup

from harness.package import VERSION
from harness.report.html.candidate import Sources, bar_width, has_grid, message_of, page_of
from harness.report.html.charts import charts
from harness.report.html.entries import SIGNS, Entry, Group, counts_of, entries_of, kind_of
from harness.report.html.searches import LEFT_OUT, Search
from harness.report.sample_scores import results_of
from harness.report.speed_comparison import WORDS
from harness.report.table import share_text
from harness.report.templates import markup_environment
from harness.system.text import one_line, printable
from harness.timing.sample_scores import DIRECTIONS, Counting, SampleScore, sample_scores
from harness.timing.statistics import Interval

_ASSETS = Path(__file__).resolve().parent / "assets"
#: Bytes of compressed pages beyond which sources are left out, and then whole pages.
MOST_BYTES = 2_000_000


class Cell(NamedTuple):
    """A cell of the matrix: a problem's candidates in a column.

    Attributes:
        entries: The candidates.
        passed: How many passed.
        best: The best speedup of those; None without one.
    """

    entries: list[Entry]
    passed: int
    best: Interval | None

    @property
    def kind(self) -> str:
        """The kind of status that colours the cell: ``passed`` if one passed, else the most frequent."""
        return "passed" if self.passed else kind_of(self.entries[0].worst.status)


class Card(NamedTuple):
    """A score with where it comes from.

    Attributes:
        title: What it is of; may be empty.
        score: The score.
        provenance: What its figures are over, and how they were measured.
    """

    title: str
    score: SampleScore
    provenance: list[tuple[str, str]]


def rendered(groups: Sequence[Group], sources: Sources, searches: Sequence[Search] = ()) -> str:
    """Renders the report about some groups of records as one HTML document.

    Args:
        groups: What to show; several are shown side by side.
        sources: Returns the judged texts.
        searches: Searches by language models to show turn by turn.

    Raises:
        UsageError: matplotlib is missing.
    """
    samples = [results_of(group.records) for group in groups]
    entries = entries_of(groups, samples)
    scores = [(group.name, _telling(sample_scores(found))) for group, found in zip(groups, samples, strict=True)]
    environment = markup_environment(_ASSETS)
    environment.filters |= {"printable": printable, "one_line": one_line, "ratio": _ratio}
    environment.globals |= {"SIGNS": SIGNS, "WORDS": WORDS, "kind_of": kind_of}
    environment.globals |= {one.__name__: one for one in (share_text, message_of, bar_width, has_grid)}
    script, style = ((_ASSETS / name).read_text(encoding="utf-8") for name in ("report.js", "report.css"))
    columns = list(dict.fromkeys(entry.column for entry in entries))
    return environment.get_template("report.html.j2").render(
        entries=entries,
        records=[record for group in groups for record in group.records],
        counts=counts_of(entries),
        columns=columns,
        matrix=_matrix(entries) if len({entry.problem for entry in entries}) > 1 or len(columns) > 1 else {},
        cards=[
            Card(
                ", ".join(filter(None, (group, score.model, score.level))),
                score,
                _provenance(score, [one for one in entries if _counts(one, group, score)]),
            )
            for group, found in scores
            for score in found
        ],
        machines=_machines(entries),
        charts=[one._replace(svg=Markup(one.svg)) for one in charts(entries, _all(scores), searches)],
        searches=searches,
        directions=[name for name in DIRECTIONS if any(entry.milliseconds(name) is not None for entry in entries)],
        pages=_pages(entries, environment, sources, searches),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=Markup(style),
        version=VERSION,
    )


def _counts(entry: Entry, group: str, score: SampleScore) -> bool:
    """Returns whether a score is over this candidate, too."""
    return entry.group == group and score.model in ("", entry.model) and score.level in ("", entry.level)


def _telling(scores: list[SampleScore]) -> list[SampleScore]:
    """Leaves out the scores of own kernels where all that passed have some."""
    return [one for one in scores if one.counting is not Counting.OWN_KERNEL or one.correct != _passed(one, scores)]


def _passed(score: SampleScore, scores: Sequence[SampleScore]) -> int | None:
    same = (one for one in scores if (one.model, one.level) == (score.model, score.level))
    return next((one.correct for one in same if one.counting is Counting.PASSED), None)


def _all(scores: Sequence[tuple[str, list[SampleScore]]]) -> list[SampleScore]:
    return [score for _, found in scores for score in found]


def _matrix(entries: Sequence[Entry]) -> dict[str, dict[str, Cell]]:
    """Returns for each problem a cell for each column that has candidates."""
    found: dict[str, dict[str, list[Entry]]] = {}
    for entry in entries:
        found.setdefault(entry.problem, {}).setdefault(entry.column, []).append(entry)
    return {
        problem: {column: _cell(members) for column, members in columns.items()} for problem, columns in found.items()
    }


def _cell(entries: list[Entry]) -> Cell:
    speeds = [one for entry in entries if (one := entry.best) is not None]
    passed = sum(entry.kind == "passed" for entry in entries)
    return Cell(entries, passed, max(speeds, key=lambda one: one[0], default=None))


def _machines(entries: Sequence[Entry]) -> list[str]:
    """Describes the devices and versions that the records were made with, each once."""
    found: dict[str, None] = {}
    for entry in entries:
        for record in entry.records:
            told = {name: value for name, value in record.environment.items() if value}
            words = ", ".join(f"{name} {value}" for name, value in told.items())
            found[one_line(f"{record.device}: {words}")] = None
    return list(found)


def _provenance(score: SampleScore, entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """Says what a score's figures are over, and how they were measured."""
    timed = ", ".join(f"{count} {WORDS[direction]}" for direction, count in score.timed.items() if count)
    told = [("correct", f"of {score.samples} samples of {score.problems} problems; the others failed")]
    if timed:
        flags = {flag for entry in entries for one in entry.records for flag in one.device_state.get("flags", ())}
        told += [
            ("geometric mean", f"of speedups over {score.baseline} of the timed correct samples ({timed})"),
            ("clock", score.clock or "none"),
            ("while timing", "; ".join(sorted(flags)) or "nothing that would disturb it was noticed"),
        ]
    return [*told, ("pass@k", "mean over problems, estimated without bias"), ("precision", score.precision)]


def _ratio(one: Interval | None) -> str:
    return "" if one is None else "{:.3g}x [{:.3g}, {:.3g}]".format(*one)


def _pages(entries: Sequence[Entry], environment: Environment, sources: Sources, searches: Sequence[Search]) -> str:
    """Returns the pages, compressed, in base64; without the largest sources and turns where they are too much."""
    template = environment.get_template("candidate.html.j2")
    pages: dict[str, str] = {}
    budget: float = MOST_BYTES
    for entry in entries:
        page = page_of(entry, sources)
        text = template.render(page=page, is_cut=False)
        size = _compressed(text)
        if size > budget:
            text = template.render(page=page, is_cut=True)
            size = _compressed(text)
        if size > budget:
            text, size = environment.get_template("left_out.html.j2").render(record=entry.worst), 0
        budget -= size
        pages[entry.key] = text
    turn_page = environment.get_template("turn.html.j2")
    for place, search in enumerate(searches):
        for turn in search.turns:
            text = turn_page.render(turn=turn)
            size = _compressed(text)
            if size > budget:
                text, size = turn_page.render(turn=turn._replace(prompt=LEFT_OUT, answer=LEFT_OUT)), 0
            budget -= size
            pages[f"t{place}-{turn.number}"] = text
    return base64.b64encode(zlib.compress(json.dumps(pages).encode(), 9)).decode()


def _compressed(text: str) -> int:
    return len(zlib.compress(text.encode(errors="backslashreplace"), 6))
