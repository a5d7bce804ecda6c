"""``show``: prints everything about one record."""

from __future__ import annotations

import sys

import click

from harness.errors import EXIT_PASSED, UsageError
from harness.project.paths import harness_home
from harness.project.settings import option
from harness.records.store import Store
from harness.report.single import sections
from harness.report.terminal import wrapped


@click.command("show")
@click.argument("record")
@click.option("--source", is_flag=True, help="Print only the text of the solution that was judged.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as one JSON object.")
@option("home")
def command(record: str, source: bool, as_json: bool, home: str | None) -> int:
    """Show everything about RECORD, with the command that repeats it.

    RECORD is a record's name or the beginning of it.

    \b
    Examples:
      python -m harness show 95f4c68cadf7
      python -m harness show 95f4 --source > judged.py
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    if source and as_json:
        raise UsageError("--source and --json cannot be used together")
    with Store(harness_home(home)) as store:
        found = store.get(record)
        text = store.source(found.digest) if source else None
    if source:
        sys.stdout.write(text or "")
        return EXIT_PASSED
    if as_json:
        print(found.to_json(stored=True))
        return EXIT_PASSED
    print(wrapped("\n\n".join(sections(found))))
    return EXIT_PASSED
