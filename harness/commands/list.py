"""``list``: lists problems, templates, solutions, runs and records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from harness.errors import EXIT_PASSED, ProblemError, SolutionError, TemplateError, UsageError
from harness.project.paths import harness_home, project_root
from harness.project.problems import read_problem
from harness.project.settings import option
from harness.project.solutions import problem_paths, read_solution, solution_paths
from harness.records.store import Store
from harness.rendering.render_templates import find_template, template_names
from harness.rendering.stamp import parse_stamp
from harness.report.terminal import fitting, screen_width, wrapped
from harness.system.text import one_line

WHAT = ("problems", "templates", "solutions", "runs", "records")
Row = dict[str, Any]
#: Columns of several names. A narrow terminal gets rows with these as paragraphs.
_LISTS = ("cases", "solutions", "variants", "on demand", "parameters")
#: Columns in the order in which a narrow terminal does without them.
_DROPPED = ("digest", "run", "problem", "device", "made", "case", "from", *_LISTS)


@click.command("list")
@click.argument("what", type=click.Choice(WHAT), default="problems")
@click.option("--problem", help="Only entries of this problem.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    default=50,
    show_default=True,
    help="List at most this many of the newest runs or records.",
)
@option("root")
@option("home")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line instead of the table.")
def command(*, what: str, problem: str | None, limit: int, root: str | None, home: str | None, as_json: bool) -> int:
    """List problems (the default), templates, solutions, runs or records.

    \b
    Examples:
      python -m harness list
      python -m harness list solutions --problem group_norm
      python -m harness list records --limit 10
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    if what == "runs" and problem is not None:
        raise UsageError("a run may have records of several problems: use `list records --problem` instead")
    if what in ("runs", "records"):
        with Store(harness_home(home)) as store:
            rows = list(_runs(store) if what == "runs" else _records(store, problem))[-limit:]
    else:
        folder = project_root(root)
        rows = list({"problems": _problems, "templates": _templates, "solutions": _solutions}[what](folder, problem))
    if as_json:
        for row in rows:
            print(json.dumps(row))
    elif rows:
        _print(rows)
    else:
        print(f"no {what}", flush=True)
    return EXIT_PASSED


def _problems(root: Path, only: str | None) -> Iterator[Row]:
    for name, path in problem_paths(root).items():
        if only not in (None, name):
            continue
        try:
            problem = read_problem(path)
        except ProblemError as error:
            yield {"problem": name, "precision": "-", "cases": str(error), "solutions": ""}
            continue
        yield {
            "problem": name,
            "precision": str(problem.precision),
            "cases": " ".join(problem.cases),
            "solutions": " ".join(solution_paths(root, name)),
        }


def _templates(root: Path, only: str | None) -> Iterator[Row]:
    for name in template_names(root):
        try:
            declaration = find_template(root, name)
        except TemplateError as error:
            yield {"template": name, "problem": "-", "variants": str(error), "on demand": "", "parameters": ""}
            continue
        if only in (None, declaration.problem):
            parameters = " ".join(f"{key}={value.default}" for key, value in declaration.parameters.items())
            yield {
                "template": name,
                "problem": declaration.problem,
                "variants": " ".join(one.name for one in declaration.variants.values() if not one.on_demand),
                "on demand": " ".join(one.name for one in declaration.variants.values() if one.on_demand),
                "parameters": parameters,
            }


def _solutions(root: Path, only: str | None) -> Iterator[Row]:
    for problem in problem_paths(root):
        if only not in (None, problem):
            continue
        for variant, path in solution_paths(root, problem).items():
            try:
                solution = read_solution(path, f"{problem}/{variant}")
            except SolutionError as error:
                yield {"solution": f"{problem}/{variant}", "from": str(error), "digest": "-"}
                continue
            stamp = parse_stamp(solution.source)
            origin = "by hand" if stamp is None else f"template {stamp.template}"
            yield {"solution": solution.name, "from": origin, "digest": solution.digest[:12]}


def _runs(store: Store) -> Iterator[Row]:
    for run in store.runs():
        yield {
            "run": run.run,
            "made": run.created_at,
            "records": run.records,
            "passed": run.passed,
            "device": run.device,
        }


def _records(store: Store, problem: str | None) -> Iterator[Row]:
    for record in store.records(problem):
        yield {
            "record": record.record,
            "made": record.created_at,
            "run": record.run,
            "solution": record.solution,
            "problem": record.problem,
            "case": record.case,
            "device": record.device,
            "status": str(record.status),
        }


def _print(rows: list[Row]) -> None:
    """Prints the rows with one aligned column per key, as far as they fit; the first always stays."""
    rows = [{key: one_line(str(value)) for key, value in row.items()} for row in rows]
    widths = {key: max(len(key), *(len(row[key]) for row in rows)) for key in rows[0]}
    first, *_ = widths
    kept = fitting(widths, [key for key in _DROPPED if key != first], screen_width())
    if len(kept) < len(widths) and not widths.keys().isdisjoint(_LISTS):
        for row in rows:
            print("\n".join([row.pop(first), *(wrapped(f"  {key}: {text}") for key, text in row.items() if text)]))
        return
    for row in [{key: key for key in rows[0]}, *rows]:
        print("  ".join(f"{row[key]:{widths[key]}}" for key in kept).rstrip())
