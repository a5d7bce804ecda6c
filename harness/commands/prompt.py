"""``prompt``: prints what ``generate`` would send to a model."""

from __future__ import annotations

import sys

import click

from harness.errors import EXIT_PASSED, UsageError
from harness.project.paths import harness_home, project_root
from harness.project.settings import option
from harness.project.solutions import find_problem
from harness.records.record import EvaluationRecord
from harness.records.run_config import RunConfig
from harness.records.store import Store


@click.command("prompt")
@click.argument("problem")
@click.option("--feedback", "record", metavar="RECORD", help="The turn after this record, with its feedback.")
@click.option("--rewrite", is_flag=True, help="Ask for a rewrite instead of an edit; needs a record that passed.")
@click.option("--case", "cases", multiple=True, help="Feedback speaks of this case; repeatable.")
@click.option("--forward-only", is_flag=True, help="As of generate; a record of --feedback says it by itself.")
@option("device")
@option("root")
@option("home")
def command(
    *,
    problem: str,
    record: str | None,
    rewrite: bool,
    cases: tuple[str, ...],
    forward_only: bool,
    device: str,
    root: str | None,
    home: str | None,
) -> int:
    """Print the prompt that `generate` would send for PROBLEM.

    Its parts are Jinja files in templates/prompts, which you may change. Stderr says how many tokens
    it has, estimated by its characters.

    \b
    Examples:
      python -m harness prompt group_norm
      python -m harness prompt group_norm --feedback 95f4c68cadf7
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    from harness.generation.attempts import Attempt, Kind, Outcome, estimated_tokens
    from harness.generation.judging import Court

    top, place = project_root(root), harness_home(home)
    solved = find_problem(top, problem)
    found: EvaluationRecord | None = None
    source = ""
    if record is not None:
        with Store(place) as store:
            found = store.get(record)
            source = store.source(found.digest) or ""
        if found.problem != solved.name:
            raise UsageError(f"--feedback {record}: this record is of problem {found.problem}, not {solved.name}")
        device = found.device
        forward_only = RunConfig.of(found).forward_only
    court = Court(problem=solved, device=device, home=place, root=top, cases=cases, forward_only=forward_only)
    prompts = court.prompts()
    if found is None:
        if rewrite:
            raise UsageError("--rewrite needs --feedback: it builds on a solution")
        text = prompts.text(Kind.WRITE)
    else:
        attempt = Attempt(1, Kind.WRITE, None, "", "", outcome=Outcome.JUDGED, source=source, records=(found,))
        if rewrite and not attempt.has_passed:
            raise UsageError(
                f"--rewrite: record {found.record} is {found.status}; only a solution that passed is rewritten"
            )
        improves = Kind.REWRITE if rewrite else Kind.EDIT
        text = prompts.text(improves if attempt.has_passed else Kind.REPAIR, attempt)
    print(text)
    print(f"about {estimated_tokens(text, '').sent:,} tokens (a quarter of its characters)", file=sys.stderr)
    return EXIT_PASSED
