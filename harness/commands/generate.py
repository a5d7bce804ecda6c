"""``generate``: lets language models write solutions, judges them and feeds the verdicts back."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.errors import EXIT_NOT_PASSED, EXIT_PASSED, UsageError
from harness.project.paths import harness_home, project_root, shown
from harness.project.settings import POSITIVE, is_set, option
from harness.project.solutions import find_problem
from harness.system.interrupts import unwinding
from harness.system.text import one_line, shortened

if TYPE_CHECKING:
    from harness.generation.attempts import Proposer
    from harness.generation.search import Search, Verdict

STRATEGIES = ("tree", "refine", "best-of-n")
_MOST_MESSAGE = 100


class Finite(click.FloatRange):
    """The click type of a finite number in a range; click's own range accepts NaN and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Converts the value, or raises an error that says what is wrong with it."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


@click.command("generate")
@click.argument("problem")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="NAME",
    help="Ask this model. Of several, the better one is asked more often.",
)
@click.option("--command", "program", metavar="PROGRAM", help="Ask a program: prompt on stdin, answer on stdout.")
@click.option(
    "--from-files",
    "files",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Take the answers of this folder, in the order of their names.",
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default=STRATEGIES[0],
    show_default=True,
    help="What to ask next: a tree of repairs, edits and rewrites; one line of refinements; independent answers.",
)
@click.option(
    "--candidates", type=click.IntRange(min=1), default=20, show_default=True, help="Ask for at most this many answers."
)
@click.option("--tokens", type=click.IntRange(min=1), help="Ask no more once this many tokens are spent.")
@click.option(
    "--device-seconds",
    type=POSITIVE,
    help="Ask no more once candidates ran this long on the device, builds not counted.",
)
@click.option("--minutes", type=POSITIVE, help="Ask no more after this many minutes, over all commands of the run.")
@click.option(
    "--price",
    nargs=2,
    type=Finite(0.0),
    metavar="IN OUT",
    help="Price of a million tokens sent and received, to show the cost.",
)
@click.option("--cost", "most_cost", type=POSITIVE, help="Ask no more once this much is spent, by --price.")
@click.option(
    "--concurrency", type=click.IntRange(1, 64), default=1, show_default=True, help="Answers to wait for at once."
)
@click.option("--temperature", type=Finite(0.0, 10.0), help="The sampling temperature. [default: the endpoint's]")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), help="The most tokens of an answer. [default: the endpoint's]"
)
@click.option(
    "--answer-timeout",
    type=POSITIVE,
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds that an answer may take.",
)
@click.option(
    "--retries",
    type=click.IntRange(0, 20),
    default=4,
    show_default=True,
    help="Further tries after a rate limit, an error of the server or a lost connection.",
)
@click.option("--case", "cases", multiple=True, help="Feedback speaks of this case; repeatable. [default: one case]")
@click.option("--forward-only", is_flag=True, help="Judge outputs only, no gradients.")
@option("device")
@option("timeout")
@click.option(
    "--run",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder of the run. If it holds an interrupted run, go on with it. [default: a new one in the home]",
)
@option("root")
@option("home")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per verdict instead of the table.")
def command(
    *,
    problem: str,
    models: tuple[str, ...],
    program: str | None,
    files: Path | None,
    strategy: str,
    candidates: int,
    tokens: int | None,
    device_seconds: float | None,
    minutes: float | None,
    price: tuple[float, float] | None,
    most_cost: float | None,
    concurrency: int,
    temperature: float | None,
    max_tokens: int | None,
    answer_timeout: float,
    retries: int,
    cases: tuple[str, ...],
    forward_only: bool,
    device: str,
    timeout: float,
    folder: Path | None,
    root: str | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Let language models write solutions of PROBLEM, and judge them.

    Each verdict becomes feedback for the next turn. The best solution must then pass every case of the
    problem with new seeds, with a kernel of its own. OPENAI_BASE_URL and OPENAI_API_KEY name the
    endpoint of --model and its key; no option, record or transcript holds them.

    \b
    Examples:
      python -m harness generate group_norm --model gpt-5 --candidates 30
      python -m harness generate group_norm --command "llm -m qwen" --minutes 20
      python -m harness generate group_norm --from-files answers --run runs/one
      python -m harness generate group_norm --model a --model b --concurrency 4 --json
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    from harness.generation.endpoint import EndpointModel, Sampling
    from harness.generation.judging import Court
    from harness.generation.programs import Answers, Program
    from harness.generation.search import Budget, Plan, Search, new_folder
    from harness.generation.strategies import strategies

    if sum(map(bool, (models, program is not None, files is not None))) != 1:
        raise UsageError("say who answers: give either --model, or --command, or --from-files")
    if most_cost is not None and price is None:
        raise UsageError("--cost needs --price IN OUT, the prices of a million tokens")
    top, place = project_root(root), harness_home(home)
    solved = find_problem(top, problem)
    proposers: list[Proposer]
    if program is not None:
        proposers = [Program(program, answer_timeout)]
    elif files is not None:
        proposers = [Answers(files)]
    else:
        sampling = Sampling(temperature=temperature, max_tokens=max_tokens, timeout_s=answer_timeout, retries=retries)
        proposers = [EndpointModel(one_line(model), sampling) for model in models]
    court = Court(
        problem=solved,
        device=device,
        home=place,
        root=top,
        cases=cases,
        timeout_s=timeout if is_set("timeout") else None,
        forward_only=forward_only,
    )
    plan = Plan(
        court=court,
        proposers=proposers,
        strategy=next(one for one in strategies() if one.name == strategy),
        budget=Budget(candidates, tokens, minutes, most_cost, price, device_seconds),
        concurrency=concurrency,
        folder=folder if folder is not None else new_folder(place),
    )
    with contextlib.closing(Search(plan)) as search, unwinding():
        table = _Table(as_json, price)
        table.begin(search, plan.folder)
        try:
            with contextlib.closing(search.verdicts()) as verdicts:
                for verdict in verdicts:
                    table.add(verdict)
        finally:
            table.finish(search, plan.folder)
    return EXIT_NOT_PASSED if search.winner is None else EXIT_PASSED


class _Table:
    """Prints verdicts as they come."""

    def __init__(self, as_json: bool, price: tuple[float, float] | None):
        self._as_json = as_json
        self._price = price

    def begin(self, search: Search, folder: Path) -> None:
        """Names the run, and prints the head of the table."""
        known = len(search.attempts)
        words = f"run {one_line(shown(folder))}"
        click.echo(f"{words}: goes on after {known} attempts" if known else words, err=True)
        if not self._as_json:
            print(f"{'#':>4}  {'asked':8} {'from':>4}  {'by':24} {'tokens':>8}  result", flush=True)

    def add(self, verdict: Verdict) -> None:
        """Prints a verdict."""
        attempt = verdict.attempt
        if self._as_json:
            row = as_json(verdict)
            if self._price is not None:
                row["cost"] = attempt.tokens.cost(self._price) if attempt.gate is None else 0.0
            print(json.dumps(row), flush=True)
            return
        if attempt.gate is not None:
            result = {True: "passed", False: "OVERFITTED", None: "undecided"}[attempt.gate.passed]
            words = f"{result}: {attempt.gate.words}" if attempt.gate.words else result
            print(f"{attempt.number:>4}  {'gate':8} {'':>4}  {'':24} {'':>8}  {_short(words)}", flush=True)
        else:
            parent = "" if attempt.parent is None else attempt.parent
            by = shortened(one_line(attempt.proposer), 24)
            head = f"{attempt.number:>4}  {attempt.kind:8} {parent:>4}  {by:24} {attempt.tokens.total:>8}"
            print(f"{head}  {_short(attempt.result)}", flush=True)

    def finish(self, search: Search, folder: Path) -> None:
        """Prints what came of the run, and the next command."""
        tokens = search.tokens
        words = f"{len(search.attempts)} attempts, {tokens.total:,} tokens{' (estimated)' if tokens.estimated else ''}"
        passed = sum(one.has_passed for one in search.attempts)
        if self._price is not None:
            cost = tokens.cost(self._price)
            words += f", cost {cost:.4g}" + (f" ({cost / passed:.4g} for each that passed)" if passed else "")
        words += f", {search.device_s:.1f} s of the device"
        winner = search.winner
        if winner is not None:
            record = winner.records[0].record
            click.echo(f"\nwinner: attempt {winner.number}, record {record}; {words}", err=self._as_json)
            click.echo(f"next: python -m harness adopt {record} --name NAME", err=self._as_json)
            return
        why = f": {search.why_ended}" if search.why_ended else ""
        click.echo(f"\nno winner; {words}{why}", err=self._as_json)
        place = one_line(shlex.quote(shown(folder)))
        click.echo(f"to go on: the same command with --run {place}", err=self._as_json)


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Returns a verdict as a JSON object."""
    from harness.generation.attempts import Tokens
    from harness.rewards import reward

    attempt = verdict.attempt
    gate = attempt.gate
    tokens = attempt.tokens if gate is None else Tokens()  # the tokens of all rows add up
    return {
        "attempt": attempt.number,
        "kind": attempt.kind,
        "parent": attempt.parent,
        "proposer": attempt.proposer,
        "outcome": attempt.outcome,
        "status": attempt.verdict,
        "message": attempt.message,
        "records": [record.record for record in attempt.records],
        "reward": reward(attempt.records) if attempt.records else None,
        "tokens": {"sent": tokens.sent, "received": tokens.received, "estimated": tokens.estimated},
        "gate": None if gate is None else dataclasses.asdict(gate),
        "winner": verdict.is_winner,
    }


def _short(text: str) -> str:
    return shortened(one_line(text), _MOST_MESSAGE)
