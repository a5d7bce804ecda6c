"""``adopt``: writes a judged solution into ``solutions/`` or as a package, with its lineage."""

from __future__ import annotations

import shlex
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
@click.option("--name", required=True, metavar="NAME", help="Write solutions/<problem>/NAME.py, or the package NAME.")
@click.option(
    "--package",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write an installable package to this folder instead, with an operator for torch.compile.",
)
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
def command(
    *,
    record: str,
    name: str,
    package: Path | None,
    folder: Path | None,
    force: bool,
    root: str | None,
    home: str | None,
) -> int:
    """Write the solution of RECORD into solutions/, or as a package, with its lineage.

    RECORD must have passed. The text below the header is the one that was judged. The header names the
    record, and the attempts of `generate` that led to it.

    \b
    Examples:
      python -m harness adopt 95f4c68cadf7 --name by_model
      python -m harness adopt 95f4c68cadf7 --name fused_norm --package fused_norm
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    from harness.generation.lineage import find_lineage
    from harness.generation.operator_package import package_files

    top, place = project_root(root), harness_home(home)
    with Store(place) as store:
        found = store.get(record)
        source = store.source(found.digest)
    if found.status is not Status.PASSED or source is None:
        raise UsageError(f"record {found.record} is {found.status}: only a solution that passed is adopted")
    solved = find_problem(top, found.problem)
    if solved.digest != found.problem_digest:
        raise UsageError(f"problem {solved.name} has changed since record {found.record}: judge the solution again")
    text = with_header(found, find_lineage(place, found, folder), source)
    if package is not None:
        for inner, content in package_files(name, found, text, solved.path.read_text(encoding="utf-8-sig")).items():
            write_solution(package / inner, content.encode("utf-8", "backslashreplace"), force)
        click.echo(f"wrote {named(package)}", err=True)
        click.echo(f"next: pip install {shlex.quote(str(package))}, then `from {name} import Model`", err=True)
        return EXIT_PASSED
    path = own_place(top, solved, name)
    written = write_solution(path, text.encode("utf-8", "backslashreplace"), force)
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
