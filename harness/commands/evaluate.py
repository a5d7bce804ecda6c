"""``evaluate``: builds, runs and judges solutions against their problems."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from harness.commands.answers import candidates_of, problems_of
from harness.commands.evaluation_run import SUMMARY_VARIABLE, Order, run_order
from harness.commands.outputs import check_folder
from harness.commands.replay import ReplayRequest
from harness.commands.replay import replay as replayed
from harness.commands.rules import LISTED, print_rules
from harness.emulator import architectures
from harness.emulator.architectures import ARCHITECTURES
from harness.errors import EXIT_PASSED, EXIT_USAGE, HarnessError, UsageError
from harness.executors.plan import CaseChoice
from harness.judge.integrity import parse_rules
from harness.project.cases import parse_settings
from harness.project.paths import harness_home, project_root
from harness.project.settings import POSITIVE, is_set, option
from harness.project.solutions import Candidate, select
from harness.records import baselines
from harness.records.rules import NO_OWN_KERNEL
from harness.records.run_config import ALLOW, FORBID, KERNELBENCH, RELAXED, STRICT, RunConfig
from harness.system.scratch import scratch_folder
from harness.system.text import printable

CHECK_HELP = """Check every access of solutions' kernels on the CPU emulator.

    The command also judges outputs there. It finds races, accesses out of bounds, uninitialised reads,
    misaligned accesses, divergence, deadlocks, wrong masks, launches beyond the limits of --arch and
    indices that overflow. Each finding has its line and threads. SELECTORS are those of `evaluate`;
    `check` is `evaluate --check`.

    \b
    Examples:
      python -m harness check group_norm/fused
      python -m harness check answer.py --problem group_norm --case odd --arch sm_86 --json
      python -m harness check answer.py --problem group_norm --case odd --exhaustive
    """


@click.command("evaluate")
@click.argument("selectors", nargs=-1)
@click.option("--problem", help="The problem (name or file) for selectors that are files.")
@click.option(
    "--answers",
    metavar="PATH",
    help="Judge the raw answers of this folder or .jsonl file, and score them; --problem may be a folder of problems.",
)
@option("device")
@click.option("--case", "cases", multiple=True, help="Only this case; repeatable. [default: all that fit the device]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="K=V",
    help="Replace a constant of the problem. Makes a new case.",
)
@option("timeout")
@option("build-timeout")
@option("fail-below")
@click.option(
    "--baseline",
    "rivals",
    multiple=True,
    metavar="NAME",
    help=f"Also time against this baseline: {', '.join(baselines.BASELINES)}; repeatable. [default: eager]",
)
@click.option(
    "--ahead",
    type=click.IntRange(min=0),
    metavar="N",
    help="Build this many candidates ahead of time. [default: two per builder, as cores and memory allow; none "
    "from standard input, where a generator may wait for each result]",
)
@click.option(
    "--lanes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Judge this many candidates at once on the CPU; a GPU has one lane. [default: 1; on a cluster one per "
    "two processors]",
)
@click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help='Where to judge: on this machine, or on a Ray cluster (pip install "kernel-harness[ray]").',
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="The address of the Ray cluster. [default: RAY_ADDRESS, else a local cluster started for this command]",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first candidate that does not pass.")
@click.option(
    "--max-hours",
    type=POSITIVE,
    metavar="H",
    help="After this many hours start no new candidate and read no more input; the same command continues from there.",
)
@click.option("--fresh", is_flag=True, help="Judge again even if the store has the answer.")
@option("root")
@option("home")
@click.option("--forward-only", is_flag=True, help="Judge outputs only, no gradients.")
@click.option("--no-timing", is_flag=True, help="Judge results only: measure no speed on a GPU.")
@click.option(
    "--precision",
    type=click.Choice([STRICT, RELAXED]),
    default=STRICT,
    show_default=True,
    help="How exact results must be: as the problem's precision class requires, or to 1e-4 in the class fp32 and "
    "1e-2 in the lower classes.",
)
@option("rules")
@click.option("--refuse", "refusals", multiple=True, metavar="RULE", help="The same as --rules RULE=enforce.")
@click.option("--require-own-kernel", is_flag=True, help=f"The same as --rules {NO_OWN_KERNEL}=enforce.")
@click.option(
    "--check",
    is_flag=True,
    help="Check every access of the kernels, on the emulator, and compile them with nvcc where there is one.",
)
@click.option(
    "--exhaustive",
    is_flag=True,
    help="With --check: run each kernel in all orders of its barriers, atomic operations and flags, up to a bound.",
)
@click.option(
    "--arch",
    type=click.Choice(list(ARCHITECTURES)),
    help=(
        "The architecture whose launch limits --check enforces, and for which it compiles. [default: "
        f"{architectures.DEFAULT}]"
    ),
)
@click.option(
    "--preset",
    type=click.Choice([KERNELBENCH]),
    help="Judge outputs only, and record what KernelBench's evaluator says beside the harness's verdict.",
)
@click.option(
    "--tf32",
    type=click.Choice([ALLOW, FORBID]),
    help="Allow or forbid TF32 in float32 products, of eager and the candidate. [default: as torch's flags say]",
)
@click.option("--compat", is_flag=True, help="Let code for an older torch build: declare again what torch removed.")
@click.option(
    "--require-confinement", is_flag=True, help="Run a candidate only if every confinement layer holds; see `doctor`."
)
@click.option(
    "--replay",
    metavar="RECORD",
    help="Repeat the evaluation of this record (a name that `show` takes, or record.json of an unpacked bundle) and "
    "report whether the result is the same.",
)
@click.option("--seed", help="The secret of an earlier run (hex), to repeat its draws. [default: a fresh one]")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Print a row for each case, and each solution's kernels and the notes of the static scan.",
)
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Also write the results as a JUnit file.",
)
@click.option(
    "--github",
    "on_github",
    is_flag=True,
    help="On GitHub Actions: write a summary of the step, and annotate the first ten solutions that fail.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per candidate and case instead of the table."
)
def command(
    *,
    selectors: tuple[str, ...],
    problem: str | None,
    answers: str | None,
    device: str,
    cases: tuple[str, ...],
    settings: tuple[str, ...],
    timeout: float,
    build_timeout: float,
    fail_below: float | None,
    rivals: tuple[str, ...],
    fail_fast: bool,
    ahead: int | None,
    lanes: int | None,
    executor: str,
    address: str | None,
    max_hours: float | None,
    fresh: bool,
    root: str | None,
    home: str | None,
    forward_only: bool,
    no_timing: bool,
    require_confinement: bool,
    precision: str,
    rules: tuple[str, ...],
    refusals: tuple[str, ...],
    require_own_kernel: bool,
    preset: str | None,
    tf32: str | None,
    compat: bool,
    check: bool,
    exhaustive: bool,
    arch: str | None,
    replay: str | None,
    seed: str | None,
    verbose: bool,
    junit: Path | None,
    on_github: bool,
    as_json: bool,
) -> int:
    """Build, run and judge solutions against their problems.

    SELECTORS are problems, problem/variant, or paths of solution files or folders. Without any,
    `evaluate` judges every solution. The selector - reads candidates from standard input, one JSON
    object per line, and judges each as it arrives. Its keys are "source" or "path"; "problem", unless
    --problem names it for all lines; "set", an object of constants, as --set takes them; and "tag", a
    name of your choice that the result repeats.

    \b
    Examples:
      python -m harness evaluate
      python -m harness evaluate group_norm/fused --case odd
      python -m harness evaluate answer.py --problem group_norm --set batch_size=2 --json
      python -m harness evaluate --device cuda:0 --fail-below 1.2 --fresh
      python -m harness evaluate group_norm --check
      python -m harness evaluate --replay 95f4c68cadf7
      python -m harness evaluate --rules
      python -m harness evaluate group_norm --rules library-operators=enforce,flags=off
      python my_model.py | python -m harness evaluate - --problem group_norm --json
      python -m harness evaluate --answers runs/my_model --problem KernelBench/KernelBench

    `evaluate` stores every evaluation before it prints it. If you ask for the same one again, the
    store answers.
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    if require_own_kernel:
        refusals = (*refusals, NO_OWN_KERNEL)
    changed_rules = parse_rules([text for text in rules if text != LISTED], refusals)
    if LISTED in rules:
        print_rules(changed_rules, as_json)
        return EXIT_PASSED
    if replay is not None:
        return replayed(
            ReplayRequest(record=replay, problem=problem, device=device, root=root, home=home, as_json=as_json)
        )
    if cases and settings:
        raise UsageError("--case and --set cannot be used together: --set makes a new case")
    if seed is not None and (not seed or set(seed) - set("0123456789abcdef")):
        raise UsageError(f"--seed {seed!r}: give the hexadecimal seed of a record")
    if arch and not check:
        raise UsageError("--arch needs --check: it sets the architecture whose launch limits apply")
    if exhaustive and not check:
        raise UsageError("--exhaustive needs --check: it explores launches whose accesses are checked")
    if check and device not in ("auto", "cpu"):
        raise UsageError(f"--check runs on the CPU emulator, not on --device {device}; leave out --device, or --check")
    if no_timing:
        for name, option_name in (("fail_below", "--fail-below"), ("rivals", "--baseline")):
            if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise UsageError(f"{option_name} and --no-timing cannot be used together: {option_name} needs timing")
        fail_below = None  # ignores a value from the settings file
    if address is not None and executor != "ray":
        raise UsageError("--address needs --executor ray: it is the address of a Ray cluster")
    if on_github and not os.environ.get(SUMMARY_VARIABLE):
        raise UsageError(f"--github: {SUMMARY_VARIABLE} is not set; GitHub Actions sets it for each step")
    if junit is not None:
        check_folder(junit)
    constants = parse_settings(settings)
    config = RunConfig(
        timeout_s=timeout if is_set("timeout") else None,
        build_timeout_s=build_timeout if is_set("build_timeout") else None,
        forward_only=forward_only,
        preset=preset or "",
        tf32=tf32 or "",
        timing=not no_timing,
        precision=precision,
        rules=changed_rules,
        compat=compat,
        check=(arch or architectures.DEFAULT) if check else "",
        exhaustive=exhaustive,
        baselines=baselines.chosen(rivals),
        require_confinement=require_confinement,
        seed=seed,
    )
    candidates, has_bad_files = None, False
    stack = click.get_current_context().with_resource(contextlib.ExitStack())
    if answers is not None:
        if selectors:
            raise UsageError("--answers takes no selectors: it judges the answers of that folder or file")
        if not answers:
            raise UsageError("--answers is empty: give a folder of answers, or a file of JSON lines")
        folder = stack.enter_context(scratch_folder("harness-answers-"))
        problems = problems_of(project_root(root), problem)
        candidates, has_bad_files = candidates_of(Path(answers), problems, folder)
        if not candidates:
            return EXIT_USAGE
    elif "-" not in selectors:
        candidates, has_bad_files = selected(root, selectors, problem)
        if not candidates:
            return EXIT_USAGE
    elif len(selectors) > 1:
        raise UsageError(
            "- (standard input) cannot be combined with other selectors: put those files on lines of the input, "
            "by their paths"
        )
    order = Order(
        candidates=candidates,
        root=root,
        problem=problem,
        choice=CaseChoice(cases, constants),
        home=harness_home(home),
        config=config,
        names_baselines=bool(rivals),
        fresh=fresh,
        ahead=ahead,
        lanes=lanes,
        executor=executor,
        address=address,
        fails_fast=fail_fast,
        max_hours=max_hours,
        fail_below=fail_below,
        as_json=as_json,
        is_scored=answers is not None and not as_json,
        verbose=verbose,
        junit=junit,
        on_github=on_github,
    )
    code = run_order(order, "cpu" if check else device)
    return EXIT_USAGE if has_bad_files else code


def selected(root: str | None, selectors: Sequence[str], problem: str | None) -> tuple[list[Candidate], bool]:
    """Finds the selected candidates, and prints an error on stderr for each bad file.

    Returns:
        The candidates, and whether there are bad files.

    Raises:
        UsageError: A selector is invalid.
    """
    bad_files: list[HarnessError] = []
    candidates = select(project_root(root), selectors, problem, bad_files.append)
    for error in bad_files:
        print(f"error: {printable(str(error))}", file=sys.stderr)
    return candidates, bool(bad_files)
