"""``validate``: checks that a problem is sound."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import click

from harness.errors import EXIT_PASSED, EXIT_USAGE, ProblemError, UsageError
from harness.executors.plan import CaseChoice, Planner
from harness.judge.validation.check_types import ProblemCheck, bad_structure
from harness.project.cases import SMALL_CASE, parse_settings
from harness.project.paths import project_root
from harness.project.settings import is_set, option
from harness.project.solutions import find_problem
from harness.records.run_config import RunConfig
from harness.report.terminal import wrapped
from harness.system.streams import results_alone

_WORDS = {True: "ok", False: "FAILED", None: "note"}


@click.command("validate")
@click.argument("problem")
@option("device")
@click.option(
    "--case", "cases", multiple=True, help="Only this case; repeatable. [default: all cases that fit the device]"
)
@click.option(
    "--set", "settings", multiple=True, metavar="K=V", help="Replace a constant of the problem. Makes a new case."
)
@option("timeout")
@option("root")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def command(
    *,
    problem: str,
    device: str,
    cases: tuple[str, ...],
    settings: tuple[str, ...],
    timeout: float,
    root: str | None,
    as_json: bool,
) -> int:
    """Check that a problem runs and can tell right answers from wrong ones.

    PROBLEM is a name or the path of a file. The command draws and evaluates each case as for a
    candidate, and checks that results repeat. It also judges known wrong answers, which must fail.
    FAILED checks lead to exit code 2. A note is worth knowing but is no fault.

    Each check may take ten times --timeout. A problem that takes longer, or ends its process, has a
    FAILED check `process`.

    \b
    Examples:
      python -m harness validate group_norm
      python -m harness validate problems/my_op.py --case odd --json
      python -m harness validate level1/19_ReLU.py --set batch_size=3 --device cpu
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    if cases and settings:
        raise UsageError("--case and --set cannot be used together: --set makes a new case")
    choice = CaseChoice(cases, parse_settings(settings))
    checks: list[ProblemCheck] = []
    with results_alone() as results:  # keeps the output of the problem's own code out of the results
        width, found = _checks(project_root(root), problem, device, choice, timeout if is_set("timeout") else None)
        for check in found:
            checks.append(check)
            if not as_json:
                print(wrapped(_line(check, width), results, hang=8), file=results, flush=True)
        failed = sum(check.ok is False for check in checks)
        whole = {"problem": problem, "ok": failed == 0, "checks": [asdict(check) for check in checks]}
        words = f"{problem}: " + (f"{failed} FAILED" if failed else "fine")
        print(json.dumps(whole) if as_json else words, file=results)
    return EXIT_USAGE if failed else EXIT_PASSED


def _checks(
    root: Path, name: str, device: str, choice: CaseChoice, timeout_s: float | None
) -> tuple[int, Iterable[ProblemCheck]]:
    """Returns the checks as they run, and the length of the longest case name.

    Raises:
        UsageError: There is no such problem, device or case.
    """
    try:
        problem = find_problem(root, name)
    except ProblemError as error:
        return 0, [bad_structure(error)]
    cases = dict(Planner(choice, on_cpu=True).cases(problem) or ())
    from harness.executors import validation
    from harness.executors.own_time import SHARE

    run_s, _ = RunConfig(timeout_s=timeout_s).seconds(problem.timeout_s)
    return max(map(len, [*(cases or problem.cases), SMALL_CASE])), validation.checks(
        problem, device, cases, SHARE * run_s
    )


def _line(check: ProblemCheck, width: int) -> str:
    return f"{_WORDS[check.ok]:6}  {check.case or '':{width}}  {check.name:9}  {check.found}"
