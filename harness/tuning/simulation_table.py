"""Formats replayed searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from harness.report.console import open_console
from harness.system.text import one_line
from harness.tuning.results import Recorded
from harness.tuning.simulation import Replay, median_evaluations


def as_json(recorded: Recorded, strategy: str, replays: Sequence[Replay]) -> dict[str, Any]:
    """Returns the replays as one JSON object."""
    return {
        "template": recorded.template,
        "device": recorded.device,
        "settings": len(recorded.trials),
        "strategy": strategy,
        "median_evaluations": median_evaluations(replays),
        "replays": [asdict(one) for one in replays],
    }


def print_replays(recorded: Recorded, strategy: str, replays: Sequence[Replay]) -> None:
    """Prints a row for each seed, and the median."""
    console = open_console()
    size = len(recorded.trials)
    title = f"{recorded.template}, recorded on {recorded.device}: {size} settings, strategy {strategy}"
    console.print(f"[bold]{escape(one_line(title))}[/bold]")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("seed", "settings to within 1 %", "best found over best recorded"):
        table.add_column(name, justify="right")
    for one in replays:
        reached = f"not in {one.judged}" if one.evaluations is None else str(one.evaluations)
        table.add_row(str(one.seed), reached, "-" if one.lead is None else f"{one.lead:.3f}")
    console.print(table)
    arrived = sum(one.evaluations is not None for one in replays)
    middle = median_evaluations(replays)
    words = "most seeds did not arrive" if middle is None else f"median {middle:g} of {size} settings"
    console.print(f"{arrived} of {len(replays)} seeds came within 1 % of the best; {words}")
