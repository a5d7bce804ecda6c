"""``bundle``: packs a record with its files, to repeat it on another machine."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands.outputs import check_folder, named, write_output
from harness.errors import EXIT_PASSED
from harness.project.paths import harness_home, project_root
from harness.project.settings import option
from harness.records.store import Store


@click.command("bundle")
@click.argument("record")
@click.option("-o", "--output", metavar="FILE", required=True, help="Write the zip archive to this file.")
@click.option("--problem", help="The record's problem (name or file), if it is elsewhere now.")
@option("root")
@option("home")
def command(record: str, output: str, problem: str | None, root: str | None, home: str | None) -> int:
    """Pack RECORD with its files, to repeat it on another machine.

    RECORD is a record's name or the beginning of it. The zip archive holds the record, the solution
    as it was judged, the problem with its cases.toml, the versions of the software, and a
    README.txt with the command that repeats the evaluation. `bundle` refuses if the problem has
    changed since.

    \b
    Examples:
      python -m harness bundle 95f4c68cadf7 -o wrong.zip
      python -m harness bundle 95f4 -o wrong.zip --problem old/group_norm.py
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    from harness.executors.replay import judged_bytes, problem_of
    from harness.report.bundle import COMMAND, bundle

    path = Path(output)
    check_folder(path)
    with Store(harness_home(home)) as store:
        found = store.get(record)
        packed_problem = problem_of(found, project_root(root), problem)
        data = bundle(found, packed_problem, judged_bytes(found, store))
    write_output(path, data)
    click.echo(f"wrote {named(path)}: unpack it and run `{COMMAND}` in its folder", err=True)
    return EXIT_PASSED
