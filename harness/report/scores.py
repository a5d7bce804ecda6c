"""Formats scores as rows for tables in Markdown and on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.report.console import open_console, print_whole
from harness.report.speed_comparison import WORDS
from harness.report.terminal import fitting
from harness.system.text import one_line
from harness.timing.scores import GRID, FastShare, Score
from harness.timing.statistics import Interval

HEADER = (
    *("direction", "baseline", "passed", "of them untimed", "failed", "geometric mean", "share of floor"),
    "passed, no kernel of its own",
)
_DROPPED = ("passed, no kernel of its own", "share of floor", "of them untimed", "failed")
CURVE_HEADER = ("direction", "baseline", *(f"p = {p:g}" for p in GRID))
#: Explanations that a reader of these figures needs.
NOTES = (
    "geometric mean: of the speedups of all timed candidates that passed; its 95 % interval covers the "
    "uncertainty of measuring these candidates, not of sampling them",
    "fast_p: the share of all candidates that passed and are more than p times as fast. In brackets, the "
    "bounds: candidates whose whole 95 % interval lies above p, and candidates whose interval reaches above "
    "p; untimed ones count only in the bounds",
)


def columns(score: Score) -> tuple[str, ...]:
    """Returns a row for ``HEADER``."""
    counts = (str(count) for count in (score.passed, score.untimed, score.failed))
    return (
        WORDS[score.direction],
        score.baseline,
        *counts,
        ratio_text(score.geometric_mean),
        _floor_text(score),
        str(score.without_own),
    )


def curve_columns(score: Score) -> tuple[str, ...]:
    """Returns a row for ``CURVE_HEADER``."""
    return (WORDS[score.direction], score.baseline, *(_share_text(score.fast_p[p]) for p in GRID))


def print_scores(scores: Sequence[Score], file: TextIO | None = None) -> None:
    """Prints scores and the curves of ``fast_p``, by default on stdout.

    Without scores it prints nothing.
    """
    if not scores:
        return
    console = open_console(file)
    curves = [curve_columns(score) for score in scores]
    print_table(console, HEADER, [columns(score) for score in scores], _DROPPED)
    # transposed, to fit the width of a terminal
    names = ("fast_p", *(" ".join(curve[:2]) for curve in curves))
    print_table(console, names, list(zip(CURVE_HEADER, *curves, strict=True))[2:])
    for note in NOTES:
        console.print(escape(note))


def print_table(
    console: Console, header: Sequence[str], rows: Iterable[Sequence[str]], dropped: Sequence[str] = ()
) -> None:
    """Prints a table, whose first column is aligned to the left, and an empty line.

    Args:
        console: Where to print.
        header: The names of the columns.
        rows: The cells.
        dropped: The columns that a narrow terminal does without, in the order in which they go.
    """
    lines = [header, *([one_line(cell) for cell in row] for row in rows)]
    widths = {name: max(map(cell_len, column)) for name, column in zip(header, zip(*lines, strict=True), strict=True)}
    kept = fitting(widths, dropped, console.width)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in kept:
        table.add_column(escape(name), justify="left" if name == header[0] else "right")
    for line in lines[1:]:
        table.add_row(*(escape(cell) for name, cell in zip(header, line, strict=True) if name in kept))
    print_whole(console, table)
    console.print()


def ratio_text(ratio: Interval | None) -> str:
    """Formats a speedup with its interval, as ``1.712x [1.704, 1.721]``; ``-`` for None."""
    if ratio is None:
        return "-"
    return f"{significant(ratio.ratio, 4)}x [{significant(ratio.low, 4)}, {significant(ratio.high, 4)}]"


def percent(share: float) -> str:
    """Formats a share as ``65.3 %``."""
    return f"{100 * share:.1f} %" if share < 100 else f"{100 * share:.1e} %"


def significant(value: float, digits: int) -> str:
    """Formats a positive number with a number of significant digits, including trailing zeros.

    Large numbers keep all digits before the decimal point.
    """
    if not 1e-6 <= value < 1e9:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(value)))
    return f"{value:.{decimals}f}"


def _floor_text(score: Score) -> str:
    share = score.floor_share
    words = f"{percent(share.ratio)} [{100 * share.low:.1f}, {100 * share.high:.1f}]" if share else "-"
    words += f" of {score.with_floor}" if share and score.with_floor < score.passed else ""
    return words + (f" ({score.beyond_floor} beyond it left out)" if score.beyond_floor else "")


def _share_text(share: FastShare | None) -> str:
    if share is None:
        return "-"
    low, middle, high = (f"{100 * one:.0f}" for one in (share.low, share.share, share.high))
    return f"{middle} %" if low == middle == high else f"{middle} % [{low}, {high}]"
