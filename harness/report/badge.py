"""Draws a badge, as an SVG file: how many solutions are correct, and how fast they are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from harness.records.record import EvaluationRecord
from harness.report.sample_scores import results_of
from harness.report.scores import significant
from harness.report.speed_comparison import WORDS
from harness.report.templates import markup_environment
from harness.system.text import one_line, shortened
from harness.timing.sample_scores import SampleScore, overall

_FILES = Path(__file__).resolve().parent / "files"
_LONGEST_LABEL = 60
_PADDING = 6
#: The width of most characters of 11-pixel Verdana, and those of some narrow and wide ones. The SVG says how
#: long each text must be, so an estimate is enough.
_USUAL, _NARROW, _WIDE = 6.9, 4.0, 10.0
#: White text is readable on each of them.
_ALL, _SOME, _NONE = "#2e7d32", "#b45309", "#b91c1c"


class _Part(NamedTuple):
    """One of the badge's two fields, in pixels."""

    text: str
    length: float
    width: float
    middle: float


def badge(records: Iterable[EvaluationRecord], label: str) -> str:
    """Returns the badge of records as an SVG document.

    Args:
        records: The records; at least one.
        label: The text of the left field.
    """
    score = overall(results_of(records))
    label = shortened(one_line(label), _LONGEST_LABEL)
    told, explained = _words(score)
    left = _part(label, 0)
    right = _part(told, left.width)
    color = _ALL if score.correct == score.samples else _SOME if score.correct else _NONE
    return (
        markup_environment(_FILES)
        .get_template("badge.svg.j2")
        .render(left=left, right=right, width=left.width + right.width, title=f"{label}: {explained}", color=color)
    )


def _words(score: SampleScore) -> tuple[str, str]:
    """Returns the text of the right field, and the longer one of the title."""
    correct = f"{score.correct} of {score.samples} correct"
    # The slower work counts if it was timed: most training is a forward with its backward.
    direction = next((name for name in ("forward_backward", "forward") if name in score.mean), None)
    if direction is None:
        return correct, correct
    ratio = f"{significant(score.mean[direction].ratio, 2)}x"
    timed = f"{score.timed[direction]} timed, {WORDS[direction]}"
    return f"{correct}, {ratio}", f"{correct}, geometric mean of speedups over eager {ratio} ({timed})"


def _part(text: str, left: float) -> _Part:
    length = round(sum(_width(one) for one in text), 1)
    width = round(length + 2 * _PADDING, 1)
    return _Part(text, length, width, round(left + width / 2, 1))


def _width(character: str) -> float:
    if not character.isascii():
        return _WIDE
    return _NARROW if character in " ,.:;!'|()[]ijlft" else _WIDE if character in "mwMW%@" else _USUAL
