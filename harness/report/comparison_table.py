"""Prints the tables of ``compare``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from harness.report.console import open_console, print_whole
from harness.report.speed_comparison import HEADER, Group, columns, lead_text
from harness.system.text import one_line


def print_groups(groups: Sequence[Group]) -> None:
    """Prints comparisons on stdout: a table each, fastest first, and the sentences on winners."""
    console = open_console()
    for number, one in enumerate(groups):
        if number:
            console.print()
        console.print(f"[bold]{escape(one_line(one.title))}[/bold]")
        table = Table(box=None, pad_edge=False, header_style="bold")
        for position, name in enumerate(HEADER):
            table.add_column(escape(name), justify="left" if position < 2 else "right")
        for entry in one.entries:
            table.add_row(*(escape(one_line(cell)) for cell in columns(entry)))
        print_whole(console, table)
        for direction in one.leads:
            console.print(escape(one_line(lead_text(one, direction))))
        if not one.leads:
            console.print("no winner: that takes two that passed and have a measured speed")
        for note in one.notes:
            console.print(escape(one_line(f"note: {note}")))
