"""``adopt``: writes a judged solution into ``solutions/``, with its lineage."""

from __future__ import annotations

from pathlib import Path

import click

from harness.commands.extract import own_place, write_solution
from harness.commands.outputs import named
from harness.errors import EXIT_PASSED, UsageError
from harness.project.paths import harness_home, project_root
from harness.project.settings import option
from harness.project.solutions import find_problem
from harness.records.record import EvaluationRecord, Status
from harness.records.store import Store
from harness.system.text import one_line


@click.command("adopt")
@click.argument("record")
@click.option("--name", required=True, metavar="NAME", help="Write solutions/<problem>/NAME.py.")
@click.option(
    "--run",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder of the run of `generate`. [default: searched in the home]",
)
@click.option("--force", is_flag=True, help="Replace an existing file, even if its content differs.")
@option("root")
@option("home")
def command(*, record: str, name: str, folder: Path | None, force: bool, root: str | None, home: str | None) -> int:
    """Write the solution of RECORD into solutions/, with its lineage.

    RECORD must have passed. The text below the header is the one that was judged. The header names the
    record, and the attempts of `generate` that led to it.

    \b
    Examples:
      python -m harness adopt 95f4c68cadf7 --name by_model
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    from harness.generation.lineage import find_lineage

    top, place = project_root(root), harness_home(home)
    with Store(place) as store:
        found = store.get(record)
        source = store.source(found.digest)
    if found.status is not Status.PASSED or source is None:
        raise UsageError(f"record {found.record} is {found.status}: only a solution that passed is adopted")
    solved = find_problem(top, found.problem)
    if solved.digest != found.problem_digest:
        raise UsageError(f"problem {solved.name} has changed since record {found.record}: judge the solution again")
    path = own_place(top, solved, name)
    lines = find_lineage(place, found, folder)
    written = write_solution(path, with_header(found, lines, source).encode("utf-8", "backslashreplace"), force)
    click.echo(f"{'wrote' if written else 'unchanged'} {named(path)}", err=True)
    click.echo(f"next: python -m harness evaluate {solved.name}/{path.stem}", err=True)
    return EXIT_PASSED


def with_header(record: EvaluationRecord, lineage: list[str], source: str) -> str:
    """Returns a solution's text below a comment that says where it came from.

    Python looks for an encoding declaration in the first two lines, so those hold no other text.
    """
    lines = [
        "Adopted from a record of the harness. The code below this header is unchanged.",
        f"digest of the code: sha256:{record.digest}",
        one_line(f"record: {record.record}, {record.verdict} on case {record.case}, {record.device}"),
        *lineage,
    ]
    return "".join(f"# {line}\n" for line in lines) + source
