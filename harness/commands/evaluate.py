"""``evaluate``: builds, runs and judges solutions against their problems."""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from click.core import ParameterSource
from tqdm import tqdm

from harness.commands.answers import candidates_of, problems_of
from harness.commands.lines import MAX_LINE_BYTES, LineReader, Lines
from harness.commands.replay import ReplayRequest
from harness.commands.replay import replay as replayed
from harness.commands.rules import LISTED, print_rules
from harness.commands.run_outcome import RunOutcome
from harness.device.devices import several as several_devices
from harness.emulator import architectures
from harness.emulator.architectures import ARCHITECTURES
from harness.errors import EXIT_PASSED, EXIT_USAGE, HarnessError, UsageError
from harness.executors import job_loop
from harness.executors.lanes import Lanes, TimeIsUp, Wanted, lanes_on
from harness.executors.plan import CaseChoice, Job, Planner, Plans, plan_key
from harness.executors.result_cache import ResultCache
from harness.judge.integrity import parse_rules
from harness.judge.policy import Policy
from harness.project.cases import parse_settings
from harness.project.paths import harness_home, project_root
from harness.project.settings import POSITIVE, is_set, option
from harness.project.solutions import Candidate, select
from harness.records import baselines
from harness.records.identity import new_run_name
from harness.records.record import EvaluationRecord
from harness.records.rules import NO_OWN_KERNEL
from harness.records.run_config import ALLOW, FORBID, KERNELBENCH, RELAXED, STRICT, RunConfig
from harness.records.store import Store
from harness.report.sample_scores import print_sample_scores
from harness.report.table import VerdictTable
from harness.system.interrupts import unwinding
from harness.system.scratch import scratch_folder
from harness.system.streams import results_alone
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
    help="Repeat the evaluation of this record (a name that `show` takes) and report whether the result is the same.",
)
@click.option("--seed", help="The secret of an earlier run (hex), to repeat its draws. [default: a fresh one]")
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
    arch: str | None,
    replay: str | None,
    seed: str | None,
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
      generate | python -m harness evaluate - --problem group_norm --json
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
    if check and device not in ("auto", "cpu"):
        raise UsageError(f"--check runs on the CPU emulator, not on --device {device}; leave out --device, or --check")
    if no_timing:
        for name, option_name in (("fail_below", "--fail-below"), ("rivals", "--baseline")):
            if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise UsageError(f"{option_name} and --no-timing cannot be used together: {option_name} needs timing")
        fail_below = None  # ignores a value from the settings file
    if address is not None and executor != "ray":
        raise UsageError("--address needs --executor ray: it is the address of a Ray cluster")
    constants = parse_settings(settings)
    config = RunConfig(
        timeout_s=timeout if is_set("timeout") else None,
        build_timeout_s=build_timeout if is_set("build_timeout") else None,
        forward_only=forward_only or preset == KERNELBENCH,
        preset=preset or "",
        tf32=tf32 or "",
        timing=not no_timing,
        precision=precision,
        rules=changed_rules,
        compat=compat,
        check=(arch or architectures.DEFAULT) if check else "",
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
    )
    code = _evaluate(order, "cpu" if check else device)
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


@dataclass(frozen=True, kw_only=True)
class Order:
    """The user's order: the candidates and all settings of the run.

    Attributes:
        candidates: The solutions; None to read them from stdin.
        root: The user's folder with ``problems`` and ``solutions``, or None.
        problem: The problem for lines of stdin that name none.
        choice: The choice of cases.
        home: ``HARNESS_HOME``.
        config: The run's configuration.
        names_baselines: Whether the user named any baseline.
        fresh: Whether to ignore the store's answers and judge again.
        ahead: Number of candidates to build before their turn; None for the default.
        lanes: Number of candidates that the CPU judges in parallel; None for the default.
        executor: ``local`` or ``ray``.
        address: The Ray cluster's address; None for the default.
        fails_fast: Whether to stop at the first candidate that does not pass.
        max_hours: Hours after which the run begins no further candidate.
        fail_below: The smallest speedup that is enough.
        as_json: Whether to print JSON lines instead of the table.
        is_scored: Whether to print the scores of the samples behind the table.
    """

    candidates: list[Candidate] | None
    root: str | None
    problem: str | None
    choice: CaseChoice
    home: Path
    config: RunConfig
    names_baselines: bool
    fresh: bool
    ahead: int | None
    lanes: int | None
    executor: str
    address: str | None
    fails_fast: bool
    max_hours: float | None
    fail_below: float | None
    as_json: bool
    is_scored: bool


def _evaluate(order: Order, wanted_device: str) -> int:
    found = RunOutcome(order.fails_fast, order.max_hours, order.fail_below)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store(order.home, writable=True))
        known = order.candidates is not None and all(store.knows(one.solution.digest) for one in order.candidates)
        is_new = order.fresh or not known
        results = stack.enter_context(results_alone())  # keeps a cluster's last messages off stdout
        lanes = _opened(order, wanted_device, is_new, stack)
        if lanes.device == "cpu" and order.fail_below is not None:
            raise UsageError("--fail-below: the CPU emulator does not measure speed; leave it out, or use a GPU")
        if lanes.device == "cpu" and order.names_baselines:
            raise UsageError("--baseline: the CPU emulator does not measure speed; leave it out, or use a GPU")
        policy = Policy.settled(order.config, lanes.device)
        ledger = ResultCache(store, new_run_name(), order.fresh, order.config.seed)
        table = VerdictTable(results)
        scored: list[EvaluationRecord] = []
        stack.callback(lambda: print_sample_scores(scored, results))
        if not order.as_json:
            stack.callback(table.finish)  # also if the user interrupts the run
        stack.enter_context(unwinding())
        planner = Planner(order.choice, lanes.device == "cpu", order.config)
        plans: Plans = {}
        run = functools.partial(
            job_loop.run, policy=policy, lanes=lanes, ledger=ledger, plans=plans, deadline=found.deadline
        )
        jobs: list[Job] = []
        if order.candidates is None:
            if sys.stdin is None:
                raise UsageError("-: standard input is closed")
            lines = stack.enter_context(_lines(sys.stdin.fileno(), order, planner))
            run = functools.partial(run, lines, ahead=order.ahead or 0, source=lines, done=lines.forget)
        else:
            jobs = [planner.job(one) for one in order.candidates]
            run = functools.partial(run, jobs, ahead=order.ahead)
            names = (job.candidate.solution.name for job in jobs)
            cases = ([name for name, _ in job.cases] if job.cases else job.candidate.problem.cases for job in jobs)
            table.expect(names, itertools.chain.from_iterable(cases))
        total = _Total(jobs, plans)
        bar = stack.enter_context(tqdm(total=total.now, file=sys.stderr, disable=None, unit="case", leave=False))
        outcomes = run(progress=bar.set_description_str)
        stack.enter_context(contextlib.closing(outcomes))
        try:
            for done, outcome in enumerate(outcomes, start=1):
                bar.total = total.now
                bar.update()
                if isinstance(outcome, job_loop.Fault):
                    found.add_fault(outcome)
                    if order.as_json and outcome.tag is not None:
                        print(outcome.to_json(), file=results, flush=True)
                else:
                    found.add(outcome.record)
                    if order.as_json:  # keeps no record in memory
                        more = {} if outcome.tag is None else {"tag": outcome.tag}
                        print(outcome.record.to_json(stored=outcome.stored, **more), file=results, flush=True)
                        found.warn_unfit(outcome.record)
                    else:
                        with tqdm.external_write_mode(sys.stderr):  # clears the progress bar for the row
                            table.add(outcome.record, outcome.stored)
                        if order.is_scored:
                            scored.append(outcome.record)
                if done != total.now and (why := found.why_stop()):
                    _tell_stop(why)
                    break
        except TimeIsUp:
            _tell_stop(found.why_stop())
    for words in found.slow:
        print(words, file=sys.stderr)
    if order.candidates is None and found.is_empty:
        print("error: standard input holds no candidate: write one JSON object a line", file=sys.stderr)
    return found.code


def _tell_stop(why: str) -> None:
    tqdm.write(f"{why}; run the same command again to continue", file=sys.stderr)


class _Total:
    """The total number of outcomes, for the progress bar.

    Args:
        jobs: The jobs of the run; empty if they are not known in advance.
        plans: The cases of problems that fit the CPU, as far as they are known.
    """

    def __init__(self, jobs: Sequence[Job], plans: Plans):
        self._plans = plans
        self._known = sum(len(job.cases) for job in jobs if job.cases is not None)
        self._left = Counter(plan_key(job.candidate.problem) for job in jobs if job.cases is None)
        self._is_open = not jobs

    @property
    def now(self) -> int | None:
        """The total; None until all jobs' cases are known."""
        for key in self._left.keys() & self._plans.keys():
            self._known += self._left.pop(key) * (len(self._plans[key].cases) or 1)  # one fault if none
        return None if self._is_open or self._left else self._known


def _opened(order: Order, wanted_device: str, is_new: bool, stack: contextlib.ExitStack) -> Lanes:
    """Opens the run's lanes on this machine's devices or on a cluster."""
    if order.executor == "ray":
        from harness.executors.cluster import Cluster, lanes_on_cluster

        cluster = Cluster(order.address, order.lanes)
        return stack.enter_context(lanes_on_cluster(cluster, wanted_device, order.home, order.config.timing))
    devices = several_devices(wanted_device, order.lanes or 1)
    return stack.enter_context(lanes_on(devices, Wanted(order.home, order.config.timing, starts_ahead=is_new)))


@contextlib.contextmanager
def _lines(descriptor: int, order: Order, planner: Planner) -> Iterator[Lines]:
    """Opens the stream of candidates from stdin."""
    with scratch_folder("harness-lines-") as folder:
        yield Lines(LineReader(descriptor, MAX_LINE_BYTES), project_root(order.root), order.problem, folder, planner)
