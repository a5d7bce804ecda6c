"""Opens the consoles on which the tables are printed."""

from __future__ import annotations

import shutil
import sys
from typing import TextIO

from rich.console import Console
from rich.table import Table

from harness.report.terminal import UNLIMITED, screen_width


def open_console(stream: TextIO | None = None) -> Console:
    """Opens a console as wide as the terminal, or one that never wraps if the stream is no terminal.

    ``COLUMNS`` sets the width of a terminal. rich applies ``NO_COLOR``, ``FORCE_COLOR`` and
    ``TERM=dumb``.

    Args:
        stream: The stream to print to; stdout by default.
    """
    file = stream or sys.stdout
    height = shutil.get_terminal_size().lines
    return Console(file=file, highlight=False, width=screen_width(file), height=height)


def print_whole(console: Console, table: Table) -> None:
    """Prints a table without breaking a cell. A narrow terminal wraps the lines itself."""
    width, console.width = console.width, UNLIMITED
    try:
        console.print(table)
    finally:
        console.width = width
