"""``extract``: turns a language model's raw answer into a solution file."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import unicodedata
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from harness.answers.choice import Extract, extract
from harness.answers.head import with_head
from harness.answers.reading import STANDARD_INPUT, RawAnswer, read_answer
from harness.commands import evaluate
from harness.errors import EXIT_PASSED, TemplateError, UsageError
from harness.project.paths import project_root, refuse_installed, shown
from harness.project.problems import Problem
from harness.project.settings import option
from harness.project.solutions import find_problem
from harness.rendering.declarations import read_declaration
from harness.rendering.render_templates import PARAMS_FILE, template_names
from harness.skeletons.writing import new_name
from harness.system.files import is_there, read_source, write_whole
from harness.system.text import one_line

_LONGEST_NAME = 100
#: The options of ``evaluate`` that say how to judge.
_JUDGING = (
    *("device", "cases", "settings", "timeout", "build_timeout", "fail_below", "rivals", "fresh", "home"),
    *("forward_only", "no_timing", "precision", "rules", "refusals", "check", "arch", "require_confinement", "seed"),
    *("require_own_kernel", "preset", "tf32", "compat"),
)


@click.command("extract")
@click.argument("answer", metavar="ANSWER")
@click.option("--problem", required=True, help="The problem (name or file) that the answer solves.")
@click.option("--name", metavar="NAME", help="Write solutions/<problem>/NAME.py. [default: from ANSWER's name]")
@click.option("-o", "--output", metavar="FILE", help="Write to this file; - is standard output.")
@click.option("--force", is_flag=True, help="Replace an existing file, even if its content differs.")
@option("root")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, then those of --evaluate.")
@click.option("--evaluate", "judged", is_flag=True, help="Also evaluate the solution; the options below say how.")
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    answer: str,
    problem: str,
    name: str | None,
    output: str | None,
    force: bool,
    root: str | None,
    as_json: bool,
    judged: bool,
    **judging: Any,
) -> int:
    """Turn a language model's raw ANSWER into a solution file.

    ANSWER is a text file, or - for standard input. The final code is the last complete fenced code
    block after the reasoning. Complete means that it parses as Python and defines ModelNew, as a
    class or by an assignment. An answer may also consist of code alone. `extract` writes the code
    unchanged, under a header that says where it came from. It runs none of it, unless --evaluate is
    given.

    \b
    Examples:
      python -m harness extract answer.txt --problem group_norm
      python -m harness extract answer.txt --problem group_norm --evaluate --case odd
      python -m harness extract - --problem group_norm -o - < answer.txt
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    _check_options(context, name, output, as_json, judged)
    folder = project_root(root)
    solved = find_problem(folder, problem)
    read = read_answer(answer)
    found = extract(read)
    data = with_head(read, found, solved.name).encode()
    if output == STANDARD_INPUT:
        click.echo(data, nl=False)
        _tell_notes(found)
        return EXIT_PASSED
    path = Path(output) if output is not None else own_place(folder, solved, _name_of(read) if name is None else name)
    written = write_solution(path, data, force)
    if as_json:
        print(
            json.dumps(_described(folder, path, solved, answer=read, found=found, data=data, written=written)),
            flush=True,
        )
    word = "wrote" if written else "unchanged"
    source = f"lines {found.first}-{found.last} of {read.shown}"
    click.echo(f"{word} {one_line(shown(path))}: {source}", err=True)
    _tell_notes(found)
    if not judged:
        return EXIT_PASSED
    # A name such as group_norm, without .py, would select a problem.
    selector = str(path) if path.is_absolute() else os.path.join(".", path)  # noqa: PTH118 - Path would drop the dot
    told = {"selectors": (selector,), "problem": problem, "root": root, "as_json": as_json}
    return _evaluate(context, {**told, **judging})


command.params += [parameter for parameter in evaluate.command.params if parameter.name in _JUDGING]


def _evaluate(context: click.Context, values: dict[str, Any]) -> int:
    """Runs ``evaluate`` with these options.

    All others, which concern many candidates, get their defaults.
    """
    callback = evaluate.command.callback
    assert callback is not None
    unsaid = evaluate.command.make_context("evaluate", [], parent=context.parent).params
    code: int = callback(**{**unsaid, **values})
    return code


def _check_options(context: click.Context, name: str | None, output: str | None, as_json: bool, judged: bool) -> None:
    """Refuses options that contradict each other.

    Raises:
        UsageError: Two options contradict each other.
    """
    if name is not None and output is not None:
        raise UsageError("--name and -o both choose where to write; give one of them.")
    if output == STANDARD_INPUT and (judged or as_json):
        raise UsageError(
            "-o - writes the code to standard output: leave out --evaluate and --json, or write to a file."
        )
    for parameter in evaluate.command.params:
        assert parameter.name is not None
        typed = context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        if parameter.name in _JUDGING and typed and not judged:
            raise UsageError(f"{parameter.opts[0]} needs --evaluate: give both, or leave it out.")


def own_place(root: Path, problem: Problem, name: str) -> Path:
    """Returns the path in the root of a solution that no template renders.

    Raises:
        UsageError: The problem lies outside the root, the root belongs to the installation, or the
            name is invalid or one that a template renders.
    """
    if problem.path.resolve().parent != (root / "problems").resolve():
        raise UsageError(f"problem {problem.name} is outside {root / 'problems'}: choose where to write with -o FILE")
    refuse_installed(root)
    chosen = new_name(name, "solution")
    for template in template_names(root):
        try:
            declaration = read_declaration(root / "templates" / template / PARAMS_FILE)
        except TemplateError:  # a template that cannot be rendered replaces nothing
            continue
        if declaration.problem == problem.name and chosen in declaration.variants:
            raise UsageError(
                f"{chosen!r} is a solution that template {template!r} renders, and rendering would overwrite "
                "this one; choose another --name"
            )
    return root / "solutions" / problem.name / f"{chosen}.py"


def _name_of(answer: RawAnswer) -> str:
    """Derives a solution's name from an answer's file name.

    The name is in lower case, with ``_`` for all characters but a-z and 0-9.

    Raises:
        UsageError: No character of the file name remains.
    """
    plain = unicodedata.normalize("NFKD", answer.name.rpartition(".")[0] or answer.name).casefold()
    kept = "".join(one for one in plain if not unicodedata.combining(one))
    name = re.sub(r"[^a-z0-9]+", "_", kept).strip("_")[:_LONGEST_NAME]
    if not name:
        raise UsageError(f"cannot derive a solution's name from {answer.shown}: give --name, or -o FILE")
    return new_name(name, "solution")


def write_solution(path: Path, data: bytes, force: bool) -> bool:
    """Writes the solution, and returns False if the same file exists already.

    Raises:
        UsageError: The path holds something else, or it cannot be written.
    """
    where = one_line(shown(path))
    try:
        if is_there(path):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise UsageError(f"{where} exists and is not a regular file; choose another --name or -o FILE")
            if read_source(path) == data:
                return False
            if not force:
                raise UsageError(
                    f"{where} exists with other content; choose another --name or -o FILE, or replace it with --force"
                )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise UsageError(f"cannot write {where}: {error.strerror}") from None
    return True


def _described(
    root: Path, path: Path, problem: Problem, *, answer: RawAnswer, found: Extract, data: bytes, written: bool
) -> dict[str, Any]:
    own = path.parent == root / "solutions" / problem.name
    return {
        "solution": f"{problem.name}/{path.stem}" if own else str(path),
        "problem": problem.name,
        "path": str(path),
        "digest": hashlib.sha256(data).hexdigest(),
        "written": written,
        "answer": answer.name,
        "answer_digest": answer.digest,
        "lines": [found.first, found.last],
        "notes": list(found.notes),
    }


def _tell_notes(found: Extract) -> None:
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
