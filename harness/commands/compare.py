"""``compare``: shows solutions, records or runs side by side."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
from click.core import ParameterSource

from harness.errors import EXIT_NOT_PASSED, EXIT_PASSED, UsageError
from harness.project.cases import CUSTOM_CASE, SMALL_CASE
from harness.project.paths import harness_home, project_root
from harness.project.settings import option
from harness.project.solutions import Candidate, problem_paths, select
from harness.records.record import EvaluationRecord
from harness.records.results_file import read_results
from harness.records.store import Store
from harness.report.speed_comparison import ComparedRecord, Group, as_json, group, machines, markdown
from harness.system.files import is_there
from harness.system.text import one_line


class ShareType(click.ParamType[float]):
    """The click type of a share, such as ``5%`` or ``0.05``: at least 0, below 1."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Returns the share as a number.

        Raises:
            click.BadParameter: The text is not a share.
        """
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = math.nan
        if not 0 <= share < 1:
            self.fail(f"{text!r} is not a share: write 5% or 0.05", param, ctx)
        return share


SHARE = ShareType()


class Operand(NamedTuple):
    """One argument of ``compare``: its entries, and whether it names a whole run."""

    name: str
    entries: list[ComparedRecord]
    is_run: bool


@click.command("compare")
@click.argument("operands", nargs=-1, required=True)
@click.option("--problem", help="The problem (name or file) for operands that are files.")
@click.option("--case", "cases", multiple=True, help="Only this case; repeatable. [default: all cases in common]")
@click.option("--force", is_flag=True, help="Also compare across devices, cases or versions of a problem.")
@click.option(
    "--fail-on", type=SHARE, help="Exit with 1 if one is slower than the first by more than this, such as 5%."
)
@option("root")
@option("home")
@click.option("--json", "to_json", is_flag=True, help="Print one JSON object instead of the table.")
@click.option("--markdown", "to_markdown", is_flag=True, help="Print Markdown instead of the table.")
def command(
    *,
    operands: tuple[str, ...],
    problem: str | None,
    cases: tuple[str, ...],
    force: bool,
    fail_on: float | None,
    root: str | None,
    home: str | None,
    to_json: bool,
    to_markdown: bool,
) -> int:
    """Compare solutions, records or runs by speed.

    The table is sorted by speed and names the winner, if there is one. OPERANDS are one of these:

    \b
    - solutions: problem/variant, a file, or a problem for all of its solutions
    - records, by the names that `list records` shows
    - whole runs, by the names that `list runs` shows, or files that
      `evaluate --json` wrote

    A run can only be compared with other runs. `compare` evaluates nothing. For a solution it takes
    the newest records in the store.

    \b
    Examples:
      python -m harness compare group_norm/fused group_norm/streamed
      python -m harness compare mine.py group_norm/fused --problem group_norm --case full --markdown
      python -m harness compare run-5ed42ce1 yesterday.jsonl
      python -m harness compare yesterday.jsonl today.jsonl --fail-on 5%
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    if to_json and to_markdown:
        raise UsageError("--json and --markdown cannot be used together")
    with Store(harness_home(home)) as store:
        found = [
            one
            for name in dict.fromkeys(operands)
            for one in _resolve(name, project_root(root), problem, set(cases), store)
        ]
    groups = _runs_grouped(found, cases, force) if _all_runs(found) else _grouped(found, cases, force)
    if to_json:
        print(json.dumps(as_json(groups)))
    elif to_markdown:
        print(markdown(groups))
    else:
        from harness.report.comparison_table import print_groups

        print_groups(groups)
    slower = [] if fail_on is None else [words for one in groups for words in one.regressions(fail_on)]
    for words in slower:
        print(one_line(words), file=sys.stderr)
    return EXIT_NOT_PASSED if slower else EXIT_PASSED


def _all_runs(found: Sequence[Operand]) -> bool:
    """Tells whether the operands are runs.

    Raises:
        UsageError: The operands mix runs with solutions or records, or there is only one operand.
    """
    runs = [operand for operand in found if operand.is_run]
    if runs and len(runs) < len(found):
        other = next(operand for operand in found if not operand.is_run)
        raise UsageError(f"{runs[0].name} is a run and {other.name} is not: compare runs with runs")
    if len(found) < 2:
        raise UsageError(f"only {found[0].name} was named: name at least two solutions, records or runs to compare")
    return bool(runs)


def _resolve(name: str, root: Path, problem: str | None, cases: set[str], store: Store) -> list[Operand]:
    """Resolves an argument to a run, a results file, a record, or the solutions that it selects."""
    path = Path(name)
    if re.fullmatch(r"run-[0-9a-f]+", name):
        records = list(store.of_run(name))
        if not records:
            raise UsageError(f"no run {name!r} in {store.path}; `python -m harness list runs` names them")
        return [Operand(name, [ComparedRecord(name, record) for record in records], is_run=True)]
    if path.suffix != ".py" and os.path.isfile(name):  # noqa: PTH113 - False for any odd name
        return [Operand(name, [ComparedRecord(name, record) for record in read_results(path)], is_run=True)]
    is_record = re.fullmatch(r"[0-9a-f]{4,12}", name) and name not in problem_paths(root)
    if is_record and (store.has(name) or not is_there(path)):
        record = store.get(name)
        return [Operand(name, [ComparedRecord(f"{record.solution} ({record.record})", record)], is_run=False)]
    candidates = select(root, [name], problem)
    return [Operand(one.solution.name, _newest(one, name, cases, store), is_run=False) for one in candidates]


def _newest(candidate: Candidate, operand: str, cases: set[str], store: Store) -> list[ComparedRecord]:
    """Returns a solution's newest record of each case, for the current files.

    Raises:
        UsageError: The solution has not been evaluated, or its problem lacks a case.
    """
    name = candidate.solution.name
    newest: dict[str, EvaluationRecord] = {}
    for record in store.of_solution(candidate.solution.digest):
        wanted = record.problem_digest == candidate.problem.digest and (not cases or record.case in cases)
        # A record with speeds counts more than a later one without, from the emulator or a failed
        # run.
        if wanted and (record.speedup or not (record.case in newest and newest[record.case].speedup)):
            newest[record.case] = record
    if not newest:
        first = _command_that_judges(operand, candidate, cases)
        raise UsageError(f"the store has no record of the current version of {name}; first `{first}`")
    return [ComparedRecord(name, record) for record in newest.values()]


def _command_that_judges(operand: str, candidate: Candidate, cases: set[str]) -> str:
    """Returns the command that judges an operand, with the options of this command."""
    context = click.get_current_context()
    words = ["python", "-m", "harness", "evaluate", operand]
    for option_name in ("problem", "root", "home"):
        if context.get_parameter_source(option_name) is ParameterSource.COMMANDLINE:
            words += [f"--{option_name}", context.params[option_name]]
    for case in sorted(cases):
        if case in candidate.problem.cases or case not in (CUSTOM_CASE, SMALL_CASE):  # which no --case names
            candidate.problem.case(case)
            words += ["--case", case]
    return one_line(shlex.join(words))


def _grouped(found: Sequence[Operand], cases: tuple[str, ...], force: bool) -> list[Group]:
    """Groups the operands by problem and case.

    If each operand is one record and no case is given, all of them form one group.
    """
    if all(len(operand.entries) == 1 for operand in found) and not cases:
        entries = [operand.entries[0] for operand in found]
        return [group(_title(entries), entries, force)]
    by_case = [{(one.record.problem, one.record.case): one for one in operand.entries} for operand in found]
    return _in_common([operand.name for operand in found], by_case, cases, force)


def _runs_grouped(found: Sequence[Operand], cases: tuple[str, ...], force: bool) -> list[Group]:
    """Groups the runs by solution and case, with one entry for each run."""
    by_case = [{(entry.record.solution, entry.record.case): entry for entry in operand.entries} for operand in found]
    return _in_common([operand.name for operand in found], by_case, cases, force)


def _in_common(
    names: Sequence[str], keyed: Sequence[dict[tuple[str, str], ComparedRecord]], cases: tuple[str, ...], force: bool
) -> list[Group]:
    """Returns a group for every key that all operands have, and names the other keys on stderr.

    Raises:
        UsageError: The operands have nothing in common.
    """
    common = [key for key in keyed[0] if all(key in one for one in keyed)]
    if cases:
        common = [key for key in common if key[1] in cases]
    if not common:
        have = [f"{name}: {', '.join(' '.join(key) for key in one)}" for name, one in zip(names, keyed, strict=True)]
        wanted = f" among the cases {', '.join(cases)}" if cases else ""
        raise UsageError(f"nothing in common to compare{wanted} ({'; '.join(have)})")
    for name, one in zip(names, keyed, strict=True):
        rest = [" ".join(key) for key in one if key not in common]
        if rest:
            print(f"{name}: left out cases that the others have no record of: {', '.join(rest)}", file=sys.stderr)
    groups = [(key[0], [one[key] for one in keyed]) for key in common]
    return [group(_title(entries, first), entries, force) for first, entries in groups]


def _title(entries: Sequence[ComparedRecord], first: str | None = None) -> str:
    records = [entry.record for entry in entries]
    return f"{first or records[0].problem} {records[0].case} on {machines(records)}"
