"""Prepares a candidate's page: errors, latencies, kernels, findings and its source."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from harness.records.record import EvaluationRecord, TensorReport
from harness.report.html.entries import Entry
from harness.report.single import sections
from harness.system.text import printable, shortened
from harness.timing.sample_scores import DIRECTIONS
from harness.timing.scores import number

#: Longer texts are shown without colours, and without a comparison with the text before.
_MOST_COLOURED, _MOST_COMPARED = 60_000, 200_000
#: Single measurements of a side that a drawing shows.
_MOST_DOTS = 60
#: The most characters of a message, and of everything about a case.
_MOST_MESSAGE, _MOST_TOLD = 20_000, 60_000
#: The largest grid that the judge makes.
_MOST_ROWS, _MOST_COLUMNS = 16, 32
#: What is coloured, by the letter of the style sheet: comments, strings, numbers, keywords and names of
#: what is defined. Each expression takes linear time on any text, which lexers of Pygments do not.
_PYTHON = re.compile(
    r"""
    (?P<c>\#[^\n]*)
    | (?P<s>[bfru]{0,2}(?:\"\"\"(?:[^"\\]|\\.|"(?!""))*(?:\"\"\")?|\'\'\'(?:[^'\\]|\\.|'(?!''))*(?:\'\'\')?
        |"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?))
    | (?P<m>\b\d[\w.]*)
    | (?P<k>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except|False|finally|for|from|global
        |if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|True|try|while|with|yield)\b)
    | \w+
    """,
    re.VERBOSE | re.DOTALL,
)
_CPP = re.compile(
    r"""
    (?P<c>//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?)
    | (?P<s>"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)
    | (?P<m>\b\d[\w.']*)
    | (?P<f>\#[ ]*[a-z]+|__(?:global|device|host|shared|constant|restrict|launch_bounds)__)
    | (?P<k>\b(?:alignas|auto|bool|break|case|char|class|const|constexpr|continue|default|do|double|else|enum|extern
        |false|float|for|half|if|inline|int|long|namespace|nullptr|operator|private|public|return|short|signed|sizeof
        |static|struct|switch|template|this|true|typename|union|unsigned|using|void|volatile|while)\b)
    | \w+
    """,
    re.VERBOSE | re.DOTALL,
)
_CUDA = re.compile(r"__global__|__device__|\#include|torch::Tensor|at::Tensor")

#: Returns the judged text with a digest; None if it is not known.
Sources = Callable[[str], str | None]


class Dots(NamedTuple):
    """A side's latencies in a drawing, with places from 0 to 100.

    Attributes:
        name: The side.
        places: Places of single measurements.
        middle: Place of the median.
        words: The median with its interval, in milliseconds.
    """

    name: str
    places: list[float]
    middle: float
    words: str


@dataclass(frozen=True)
class Page:
    """The content of a candidate's page.

    Attributes:
        entry: The candidate.
        tensors: For each case its tensors, the worst first.
        latencies: Title and sides of each measured direction.
        source: Its text in colours, one item per line; empty if the text is not known.
        marked: Lines that findings name.
        changes: Lines of the comparison with the text before it, with their kind.
        told: Everything about each case, as ``show`` prints it.
    """

    entry: Entry
    tensors: list[tuple[EvaluationRecord, list[TensorReport]]]
    latencies: list[tuple[str, list[Dots]]]
    source: list[Markup]
    marked: frozenset[int]
    changes: list[tuple[str, str]]
    told: list[tuple[str, str]]


def page_of(entry: Entry, sources: Sources) -> Page:
    """Prepares the page of a candidate."""
    text = sources(entry.worst.digest)
    before = sources(entry.earlier[-1]) if entry.earlier else None
    return Page(
        entry,
        tensors=[(record, _sorted(record)) for record in entry.records if record.outputs or record.gradients],
        latencies=list(_latencies(entry)),
        source=[] if text is None else coloured(text),
        marked=frozenset(one.line for record in entry.records for one in record.findings if one.line),
        changes=[] if text is None or before is None else _changes(before, text),
        told=[(record.case, shortened("\n\n".join(sections(record)), _MOST_TOLD)) for record in entry.records],
    )


def message_of(record: EvaluationRecord) -> str:
    """Returns a record's message with control characters escaped, cut if it is very long."""
    return shortened(printable(record.message), _MOST_MESSAGE)


def bar_width(share: float) -> float:
    """Returns the length of a bar from 0 to 100, where 50 is the budget; a share may be any number."""
    return round(min(100.0, max(0.0, 50 * share)), 1) if share == share else 100.0


def has_grid(report: TensorReport) -> bool:
    """Returns whether a tensor has a grid of the judge's form."""
    grid = report.wrong_grid
    return 0 < len(grid) <= _MOST_ROWS and all(
        0 < len(row) <= _MOST_COLUMNS and len(row) == len(grid[0]) for row in grid
    )


def _sorted(record: EvaluationRecord) -> list[TensorReport]:
    tensors = [*record.outputs, *record.gradients]
    return sorted(tensors, key=lambda one: -(math.inf if one.share is None and not one.ok else one.share or 0))


def _latencies(entry: Entry) -> Iterator[tuple[str, list[Dots]]]:
    for record in entry.records:
        for direction in DIRECTIONS:
            sides: dict[str, Any] = record.samples.get(direction, {})
            times = {name: found for name, side in sides.items() if (found := _times(side))}
            if times:
                words = "forward" if direction == DIRECTIONS[0] else "forward and backward"
                yield f"{words}, case {record.case}", _dots(sides, times)


def _dots(sides: dict[str, Any], times: dict[str, list[float]]) -> list[Dots]:
    least, most = min(map(min, times.values())), max(map(max, times.values()))

    def place(time: float) -> float:
        return round(100 * math.log(time / least) / math.log(most / least), 2) if most > least else 50.0

    return [
        Dots(
            name,
            [place(time) for time in found[:_MOST_DOTS]],
            place(float(sides[name]["median_ms"])),
            "{median_ms:.4g} ms [{low_ms:.4g}, {high_ms:.4g}]".format(**sides[name]),
        )
        for name, found in times.items()
    ]


def _times(side: dict[str, Any]) -> list[float]:
    found = (number(one) for one in side.get("samples_ms", ()))
    return [one for one in found if one is not None and one > 0]


def coloured(text: str) -> list[Markup]:
    """Colours a solution: Python, with CUDA inside its strings. Returns its lines.

    A long text has no colours.
    """
    text = printable(text)
    if len(text) > _MOST_COLOURED:
        return [escape(line) for line in text.splitlines()]
    lines: list[list[str]] = [[]]
    for letter, piece in _pieces(_PYTHON, text):
        for place, part in enumerate(piece.split("\n")):
            if place:
                lines.append([])
            if part:
                safe = str(escape(part))
                lines[-1].append(f"<b class={letter}>{safe}</b>" if letter and part.strip() else safe)
    return [Markup("".join(line)) for line in lines]  # every part was escaped


def _pieces(language: re.Pattern[str], text: str) -> Iterator[tuple[str, str]]:
    """Yields the text in pieces with the letter of their kind; a string that holds CUDA comes as C++."""
    end = 0
    for match in language.finditer(text):
        yield "", text[end : match.start()]
        letter, piece, end = match.lastgroup or "", match[0], match.end()
        if letter == "s" and language is _PYTHON and "\n" in piece and _CUDA.search(piece):
            yield from _pieces(_CPP, piece)
        else:
            yield letter, piece
    yield "", text[end:]


def _changes(before: str, text: str) -> list[tuple[str, str]]:
    if len(before) + len(text) > _MOST_COMPARED:
        return []
    kinds = {"+": "added", "-": "removed", "@": "place"}
    found = difflib.unified_diff(printable(before).splitlines(), printable(text).splitlines(), n=2, lineterm="")
    return [(kinds.get(line[:1], "same"), line) for line in list(found)[2:]]
