"""``tune``: searches a template's parameters for the fastest correct setting."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click
from tqdm import tqdm

from harness.commands.outputs import check_folder, named, write_output
from harness.commands.render import pairs
from harness.device.devices import guess, several
from harness.errors import EXIT_NOT_PASSED, EXIT_PASSED, UsageError
from harness.project.cases import parse_settings
from harness.project.paths import harness_home, project_root, refuse_installed
from harness.project.settings import POSITIVE, is_set, option
from harness.project.solutions import find_problem
from harness.rendering.render_templates import Freshness, Rendering, solution_path
from harness.rendering.values import written
from harness.tuning import simulation, simulation_table
from harness.tuning.by_case import Outcome
from harness.tuning.results import OBJECTIVES, Trial, read_recorded
from harness.tuning.run import Order, Progress, judge_of, run_search
from harness.tuning.search import Limits, Question
from harness.tuning.strategies import DEFAULT, OF_TWO, STRATEGIES
from harness.tuning.summary import Summary, print_sentences, print_summary
from harness.tuning.template import Searched, searched

#: Settings that a search on a GPU judges if the user sets no limit.
DEFAULT_BUDGET = 200
#: Values of a parameter that --count lists.
MOST_LISTED = 12


@click.command("tune")
@click.argument("template", required=False, metavar="TEMPLATE|PROBLEM")
@click.option(
    "-p",
    "--param",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="Search only these values of a parameter; repeatable. [default: all that the template allows]",
)
@click.option("--count", "counts", is_flag=True, help="Only say how many settings are valid, and exit.")
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    help=f"How to choose settings. [default: {DEFAULT}; on the CPU exhaustive, or random with a limit]",
)
@click.option(
    "--against",
    type=click.Choice(OBJECTIVES),
    help="Also search for less error or memory, and print what is not beaten in both. Chooses nsga2; needs a GPU.",
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help="Judge at most N settings. [default: 200; on the CPU, or exhaustive, all]",
)
@click.option("--minutes", type=POSITIVE, metavar="M", help="After M minutes begin no further setting.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the strategy.")
@click.option("--check", "checks", is_flag=True, help="Check every access of each setting's kernels, on the emulator.")
@option("device")
@click.option(
    "--lanes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Judge this many settings at once on the CPU; a GPU has one lane.",
)
@click.option(
    "--case",
    "cases",
    multiple=True,
    help="Judge this case; repeatable, for one setting for all. [default: full on a GPU, the smallest on the CPU]",
)
@click.option("--by-case", is_flag=True, help="Search each --case by itself, for a solution that chooses by shape.")
@click.option(
    "--held-out",
    "held_out",
    multiple=True,
    metavar="CASE",
    help="Compare the result with the default setting on this case, which the search does not see; repeatable.",
)
@click.option(
    "--set", "constants", multiple=True, metavar="K=V", help="Replace a constant of the problem. Makes a new case."
)
@click.option("--forward-only", is_flag=True, help="Judge and time outputs only, no gradients.")
@option("timeout")
@option("build-timeout")
@click.option("--write", "name", metavar="NAME", help="Render the winner to solutions/<problem>/NAME.py. Needs a GPU.")
@click.option(
    "--simulate",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Replay the search of this file under --strategy, without a device.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Replays of --simulate, with the seeds from --seed on. [default: 10]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the search to this file as JSON, for --simulate.",
)
@option("root")
@option("home")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def command(
    *,
    template: str | None,
    assignments: tuple[str, ...],
    counts: bool,
    strategy: str | None,
    against: str | None,
    budget: int | None,
    minutes: float | None,
    seed: int,
    checks: bool,
    device: str,
    lanes: int,
    cases: tuple[str, ...],
    by_case: bool,
    held_out: tuple[str, ...],
    constants: tuple[str, ...],
    forward_only: bool,
    timeout: float,
    build_timeout: float,
    name: str | None,
    simulate: Path | None,
    seeds: int | None,
    output: Path | None,
    root: str | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Search a template's parameters for the fastest correct setting.

    TEMPLATE is a template, or a problem for the template of its default variant. The space has all
    settings that params.toml allows. `tune` judges settings one after another: first those of the
    template's variants, then those that the store knows, then those that the strategy chooses. On a
    GPU it gives each a short run, and judges and times the fastest ones in full. On the CPU it judges
    correctness only.

    The same command continues after an interrupt, since the store answers for what was judged.

    \b
    Examples:
      python -m harness tune group_norm --count
      python -m harness tune group_norm -p fusion=streamed,fused -p threads=128,256,512 --budget 100
      python -m harness tune group_norm --write tuned
      python -m harness tune group_norm --case full --case odd --by-case --held-out instance --write by_shape
      python -m harness tune my_op --check
      python -m harness tune group_norm --strategy exhaustive -o all.json
      python -m harness tune --simulate all.json --strategy random --budget 50
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    if output is not None:
        check_folder(output)
    if simulate is not None:
        if template is not None or assignments:
            raise UsageError("--simulate replays a file: leave out the template and -p")
        if strategy == OF_TWO or against is not None:
            raise UsageError(f"--simulate replays times alone: leave out --against and --strategy {OF_TWO}")
        return _simulate(simulate, strategy or DEFAULT, budget, range(seed, seed + (seeds or 10)), as_json)
    if template is None:
        raise UsageError("name a template or a problem; `python -m harness list templates` shows them")
    if seeds is not None:
        raise UsageError("--seeds needs --simulate: a search has one seed, --seed")
    if cases and constants:
        raise UsageError("--case and --set cannot be used together: --set makes a new case")
    folder = project_root(root)
    found = searched(folder, template, pairs(assignments))
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    if counts:
        return _count(found, as_json)
    if checks:
        if is_set("device") and device not in ("auto", "cpu"):
            raise UsageError(f"--check runs on the CPU emulator, not on --device {device}; leave out one of them")
        device = "cpu"
    on_cpu = guess(several(device, lanes)[0]) == "cpu"
    if (strategy == OF_TWO) != (against is not None) and strategy is not None:
        raise UsageError(f"--strategy {OF_TWO} and --against {'|'.join(OBJECTIVES)} belong together")
    if against is not None and on_cpu:
        raise UsageError("--against needs a GPU: the emulator measures no speed")
    cases, held_out = tuple(dict.fromkeys(cases)), tuple(dict.fromkeys(held_out))
    if by_case and len(cases) < 2:
        raise UsageError("--by-case needs at least two cases: name them with --case")
    if by_case and against is not None:
        raise UsageError("--by-case searches for times alone: leave out --against")
    if both := set(cases) & set(held_out):
        raise UsageError(f"--held-out {min(both)}: the search sees this case, by --case; choose another one")
    if (by_case or held_out) and on_cpu:
        raise UsageError(f"{'--by-case' if by_case else '--held-out'} needs a GPU: the emulator measures no speed")
    target = None if name is None else _target(folder, found, name, on_cpu)
    is_limited = budget is not None or minutes is not None
    if strategy is None:
        strategy = OF_TWO if against else DEFAULT if not on_cpu else "random" if is_limited else "exhaustive"
    if not on_cpu and not is_limited and strategy != "exhaustive":
        budget = DEFAULT_BUDGET
    problem = find_problem(folder, found.declaration.problem)
    values = parse_settings(constants)
    problem.check_constants(values, "--set")
    for case in (*cases, *held_out):
        problem.case(case)
    order = Order(
        root=folder,
        home=harness_home(home),
        device=device,
        question=Question(str(problem.path), cases, values),
        strategy=strategy,
        seed=seed,
        limits=Limits(budget, minutes),
        lanes=lanes,
        checks=checks,
        forward_only=forward_only,
        against=against or "",
        timeout_s=timeout if is_set("timeout") else None,
        build_timeout_s=build_timeout if is_set("build_timeout") else None,
    )
    questions = [replace(order.question, cases=(case,)) for case in cases] if by_case else [order.question]
    searches = [Summary(found, replace(order, question=one), Progress()) for one in questions]
    outcome = Outcome(searches, by_case)
    with contextlib.ExitStack() as stack:
        stack.callback(_report, outcome, output, as_json)  # also after an interrupt
        evaluator = stack.enter_context(judge_of(found, order))
        for search in searches:
            with _bar(search) as add:
                run_search(evaluator, found, search.order, search.progress, add)
        outcome.settle(evaluator, problem, held_out)
    return _finish(outcome, target)


def _count(found: Searched, as_json: bool) -> int:
    """Prints the size of the space and the values of each parameter."""
    space = found.space
    if as_json:
        values = dict(zip(space.names, map(list, space.axes), strict=True))
        print(json.dumps({"template": found.declaration.template, "valid_settings": space.size, "values": values}))
        return EXIT_PASSED
    for name, axis in zip(space.names, space.axes, strict=True):
        when = found.declaration.parameters[name].when
        words = [written(value) for value in axis]
        if len(words) > MOST_LISTED:
            words = [*words[:3], "...", f"{words[-1]} ({len(words)} values)"]
        print(f"{name}: {', '.join(words)}" + (f", when {when.rule}" if when else ""))
    print(f"{space.size:,} valid settings")
    return EXIT_PASSED


def _target(root: Path, found: Searched, name: str, on_cpu: bool) -> Path:
    """Returns the file for the winner, before the search begins.

    Raises:
        UsageError: The winner could not be written there.
        TemplateError: The name is not valid for a file.
    """
    if on_cpu:
        raise UsageError("--write needs a GPU: the emulator measures no speed, so there is no winner to write")
    if name in found.declaration.variants:
        raise UsageError(f"--write {name}: the template declares a variant of this name; choose another name")
    refuse_installed(root)
    path = solution_path(root, found.declaration, name)
    freshness = Rendering(path, "").freshness()
    if freshness in (Freshness.EDITED, Freshness.UNSTAMPED):
        raise UsageError(f"--write {name}: {named(path)} is {freshness.value}; choose another name, or remove it")
    return path


@contextlib.contextmanager
def _bar(summary: Summary) -> Iterator[Callable[[Trial], None]]:
    """Shows a progress bar on stderr, if that is a terminal; yields what to call after each result."""
    size, budget = summary.searched.space.size, summary.order.limits.budget
    total = size if budget is None else min(size, budget)
    with tqdm(total=total, file=sys.stderr, disable=None, unit="setting", leave=False, dynamic_ncols=True) as bar:

        def add(_: Trial) -> None:
            bar.set_postfix_str(summary.counts(), refresh=False)
            bar.update()

        yield add


def _report(outcome: Outcome, output: Path | None, as_json: bool) -> None:
    """Prints the result so far, and writes its file."""
    begun = [one for one in outcome.searches if one.has_begun]
    if not begun:  # its error says why
        return
    told = outcome.to_json()
    if as_json:
        print(told)
    else:
        for search in begun:
            print_summary(search, sys.stdout)
        print_sentences(outcome.sentences(), sys.stdout)
    if output is not None:
        write_output(output, f"{told}\n".encode())
        print(f"wrote {named(output)}", file=sys.stderr)


def _finish(outcome: Outcome, target: Path | None) -> int:
    """Writes the result, if the user asked for it, and returns the exit code."""
    trials = [trial for search in outcome.searches for trial in search.progress.trials]
    if outcome.searches[0].progress.device == "cpu":
        return EXIT_PASSED if trials and all(one.has_passed for one in trials) else EXIT_NOT_PASSED
    if outcome.text and not outcome.holds:
        return EXIT_NOT_PASSED
    if target is None or not outcome.text:
        is_enough = target is None and (bool(outcome.text) or not outcome.is_by_case)
        return EXIT_PASSED if is_enough and all(one.fastest() for one in outcome.searches) else EXIT_NOT_PASSED
    Rendering(target, outcome.text).write()
    print(f"wrote {named(target)}", file=sys.stderr)
    return EXIT_PASSED


def _simulate(path: Path, strategy: str, budget: int | None, seeds: range, as_json: bool) -> int:
    """Replays a recorded search and prints how soon the strategy came within 1 % of the best."""
    recorded = read_recorded(path)
    replays = simulation.replays(recorded, strategy, budget, seeds)
    if as_json:
        print(json.dumps(simulation_table.as_json(recorded, strategy, replays)))
    else:
        simulation_table.print_replays(recorded, strategy, replays)
    return EXIT_PASSED
