"""Replay: repeats an earlier evaluation and compares the results.

A replay uses the record's solution text, case, policy and seeds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.emulator.architectures import ARCHITECTURES
from harness.errors import ProblemError, SolutionError, UsageError
from harness.executors.bundle_files import SOLUTION_FILE
from harness.executors.plan import Job
from harness.executors.result_cache import ResultCache
from harness.executors.single_run import judged, lane_alone
from harness.project.cases import CUSTOM_CASE, SMALL_CASE, parse_settings
from harness.project.problems import Problem, read_problem
from harness.project.solutions import Candidate, Solution, problem_paths, read_solution
from harness.records.baselines import chosen
from harness.records.identity import IDENTIFYING, new_run_name
from harness.records.json_values import plain
from harness.records.record import EvaluationRecord, TensorReport
from harness.records.run_config import ALLOW, FORBID, KERNELBENCH, RELAXED, STRICT, RunConfig
from harness.records.store import Store
from harness.system.files import read_source, source_bytes
from harness.system.scratch import scratch_folder
from harness.system.text import one_line

#: The fields of an environment that may change the bits of a result.
_ENVIRONMENT = (*IDENTIFYING, "driver")
#: The name of the digests of a candidate's inputs, and the prefix of the names of gradients.
_GIVEN, _GRADIENT = "given", "gradient of "


class ReplayOutcome(enum.StrEnum):
    """The outcome of a replay.

    ``IDENTICAL`` means bitwise equality. ``SAME_VERDICT`` means the same verdict, with figures that
    differ for a known reason. ``DIFFERENT`` means anything else.
    """

    IDENTICAL = "identical"
    SAME_VERDICT = "same verdict"
    DIFFERENT = "different"


@dataclass(frozen=True)
class ReplayTask:
    """An evaluation to repeat.

    Attributes:
        original: The earlier record.
        problem: The record's problem, unchanged.
        device: ``cpu`` or ``cuda:N``.
        home: ``HARNESS_HOME``.
        progress: Called with the name of the current step.
        solution: Another path where the solution's text may lie, as in a bundle.
    """

    original: EvaluationRecord
    problem: Problem
    device: str
    home: Path
    progress: Callable[[str], None] = lambda _: None
    solution: Path | None = None


def problem_of(record: EvaluationRecord, root: Path, named: str | None, beside: Sequence[Path] = ()) -> Problem:
    """Returns the problem of a record, with the text that it had then.

    Args:
        record: The record.
        root: Folder that holds ``problems``.
        named: The user's name or file for the problem. If None, ``problem_of`` looks at the files
            of ``beside``, at the record's path, then in the root under the problem's name.
        beside: Files that came with the record.

    Raises:
        UsageError: No file has the problem's text.
        ProblemError: The file that the user named is not a problem.
    """
    known = problem_paths(root)
    if named is not None:
        places = [known.get(named, Path(named))]
    else:
        places = [*beside, Path(record.problem_path), *([known[record.problem]] if record.problem in known else [])]
    changed = None
    for place in places:
        try:
            problem = read_problem(place)
        except ProblemError:
            if named is not None:
                raise
            continue
        if problem.digest == record.problem_digest:
            return problem
        changed = changed or problem
    if changed is None:
        raise UsageError(
            f"record {record.record}: its problem {one_line(record.problem_path)} is missing, or is not a "
            f"problem any more; name the file with --problem (sha256 {record.problem_digest})"
        )
    raise UsageError(
        f"record {record.record}: its problem has changed: {one_line(str(changed.path))} has sha256 "
        f"{changed.digest[:12]}, but the record was made with {record.problem_digest[:12]}. Restore the "
        "file, or name a copy of the original with --problem"
    )


def repeated(task: ReplayTask, store: Store) -> EvaluationRecord:
    """Judges again under a record's policy and seeds, and keeps the new record in the store.

    Returns:
        The new record; its ``replay`` field holds the comparison.

    Raises:
        UsageError: The record cannot be repeated here.
        ProblemError: The problem does not run.
        HarnessError: The device or its compiler is missing.
    """
    original = task.original
    constants = constants_of(original, task.problem)
    _check_repeatable(original)
    with _candidate(task, store) as candidate:
        config = RunConfig.of(original)
        with lane_alone(task.device, task.home, is_timed=config.timing) as lane:
            from harness.judge.evaluation.blank_records import TRIALS
            from harness.judge.policy import Policy

            again = replace(config, trials=None, replay=True)
            policy = replace(Policy.settled(again, lane.device), own_seed=original.own_seed or original.seed)
            job = Job(candidate, ((original.case, constants),))
            record = judged(lane, job, policy, config.trials or TRIALS, task.progress)
        record = replace(record, solution=original.solution, solution_path=original.solution_path)
        record = replace(record, replay={"of": original.record, **compared(original, record), **record.replay})
        ledger = ResultCache(store, new_run_name(), fresh=True, seed=original.seed)
        return ledger.keep(candidate, record)


def _check_repeatable(record: EvaluationRecord) -> None:
    """Checks the seeds and the policy of a record that any program may have written.

    Raises:
        UsageError: This version of the harness cannot repeat them.
    """
    config = RunConfig.of(record)
    chosen(config.baselines)
    if not re.fullmatch("[0-9a-f]+", record.seed) or not re.fullmatch("[0-9a-f]*", record.own_seed):
        raise UsageError(f"record {record.record}: its seeds are not hexadecimal, so no harness drew from them")
    for name, value, known in (
        ("precision", config.precision, (STRICT, RELAXED)),
        ("preset", config.preset, ("", KERNELBENCH)),
        ("tf32", config.tf32, ("", ALLOW, FORBID)),
        ("check", config.check, ("", *ARCHITECTURES)),
    ):
        if value not in known:
            raise UsageError(
                f"record {record.record}: this harness knows no {name} {value!r}; it knows "
                f"{', '.join(filter(None, known))}"
            )


def compared(original: EvaluationRecord, again: EvaluationRecord) -> dict[str, Any]:
    """Compares two evaluations; returns the fields of ``EvaluationRecord.replay``.

    Args:
        original: The earlier record.
        again: The later record, with the spread of results on the same inputs.
    """
    environment = _other_environment(original, again)
    differences = _differences(original, again)
    found: dict[str, Any] = {"environment": environment, "differences": differences}
    if _verdict(original) != _verdict(again):
        return {"outcome": ReplayOutcome.DIFFERENT.value, "why": "the verdict differs", **found}
    if not differences:
        return {"outcome": ReplayOutcome.IDENTICAL.value, "why": "", **found}
    outcome, why = _explained(original, again, environment, [one["field"] for one in differences])
    return {"outcome": outcome.value, "why": why, **found}


def _explained(
    original: EvaluationRecord, again: EvaluationRecord, environment: dict[str, Any], fields: Sequence[str]
) -> tuple[ReplayOutcome, str]:
    """Returns the outcome, and its reason, for two records with one verdict and other figures."""
    if environment:
        return ReplayOutcome.SAME_VERDICT, (
            f"the environment differs ({', '.join(environment)}), so results are compared within their "
            "budgets, not bit for bit"
        )
    other = {name for name in original.digests if original.digests[name] != again.digests.get(name)}
    if "findings" in fields:
        return ReplayOutcome.DIFFERENT, "other findings"
    if not original.digests or original.digests.keys() != again.digests.keys():
        return ReplayOutcome.DIFFERENT, "results cannot be compared bit for bit"
    if not other:
        return ReplayOutcome.SAME_VERDICT, (
            "the candidate received and returned the same bits; the figures differ because the reference is "
            "not deterministic"
        )
    if _GIVEN in other:
        if original.kinks:
            return ReplayOutcome.SAME_VERDICT, (
                "the inputs differ: eager's rounding decides which samples are drawn again, and it has changed"
            )
        return (
            ReplayOutcome.DIFFERENT,
            "the inputs differ under the same seeds: the problem draws from something other than the seed",
        )
    unsteady = set(again.replay.get("spread", {}).get("tensors", {}))
    outputs = {name for name in unsteady if not name.startswith(_GRADIENT)}
    # One cotangent is the output itself. If the output varies, so do its gradients.
    steady = {name for name in other - unsteady if not (outputs and name.startswith(_GRADIENT))}
    if steady:
        return ReplayOutcome.DIFFERENT, (
            f"{', '.join(sorted(steady))}: the bits differ from the record's, but runs on the same inputs "
            "agree: the result depends on something other than its inputs"
        )
    return ReplayOutcome.SAME_VERDICT, "the candidate is not deterministic: see how far its results differ"


def _verdict(record: EvaluationRecord) -> tuple[Any, ...]:
    wrong = [report.name for report in (*record.outputs, *record.gradients) if not report.ok]
    return record.status, record.rule, sorted(wrong)


def _differences(original: EvaluationRecord, again: EvaluationRecord) -> list[dict[str, Any]]:
    """Returns the fields that differ between two records, each with both values."""
    found: list[dict[str, Any]] = []
    for name in ("status", "rule", "trials", "reference_pieces", "kinks", "further_draws"):
        _note(found, name, getattr(original, name), getattr(again, name))
    for side, prefix in (("outputs", ""), ("gradients", _GRADIENT)):
        then, now = ({report.name: report for report in getattr(one, side)} for one in (original, again))
        for name in dict.fromkeys((*then, *now)):
            mine, theirs = _figures(then.get(name)), _figures(now.get(name))
            for key in dict.fromkeys((*mine, *theirs)):
                _note(found, f"{prefix}{name}: {key}", mine.get(key), theirs.get(key))
    if original.digests and again.digests:
        for name in dict.fromkeys((*original.digests, *again.digests)):
            pair = (list(one.digests.get(name, ())) for one in (original, again))
            _note(found, f"{name}: digests", *pair)
    _note(found, "findings", *(sorted(_finding_names(one).elements()) for one in (original, again)))
    return found


def _note(found: list[dict[str, Any]], name: str, then: Any, now: Any) -> None:
    then, now = plain(then), plain(now)  # in plain values NaN equals itself
    if then != now:
        found.append({"field": name, "then": then, "now": now})


def _figures(report: TensorReport | None) -> dict[str, Any]:
    return {} if report is None else dataclasses.asdict(report)


def _finding_names(record: EvaluationRecord) -> Counter[str]:
    """Counts findings by kind and place; their messages may name addresses and threads."""
    return Counter(
        " ".join(filter(None, (one.kind, one.kernel, f"line {one.line}" if one.line else "", one.level)))
        for one in record.findings
    )


def _other_environment(original: EvaluationRecord, again: EvaluationRecord) -> dict[str, Any]:
    """Returns the parts of the machine and the software that differ, each with both values."""
    pairs = {name: (original.environment.get(name), again.environment.get(name)) for name in _ENVIRONMENT}
    pairs["device"] = tuple(one.device.partition(":")[0] for one in (original, again))  # type: ignore[assignment]
    pairs["nvcc"] = RunConfig.of(original).nvcc, RunConfig.of(again).nvcc
    return {name: {"then": then, "now": now} for name, (then, now) in pairs.items() if then != now}


def constants_of(record: EvaluationRecord, problem: Problem) -> dict[str, Any]:
    """Returns the case's constants with their original types, which JSON does not keep.

    Raises:
        UsageError: The problem has no such case or constant, or a setting cannot be read.
    """
    is_made = record.case == SMALL_CASE and SMALL_CASE not in problem.cases  # by the harness, of whole numbers
    if record.case != CUSTOM_CASE and not is_made:
        return problem.case(record.case)
    constants = parse_settings(record.settings) if record.settings else record.constants
    problem.check_constants(constants, f"record {record.record}")
    return constants


def judged_bytes(record: EvaluationRecord, store: Store, *places: Path) -> bytes:
    """Returns the exact text of the solution that a record judged.

    Args:
        record: The record.
        store: The store that may have the text.
        places: Files that may have it, beside the record's own path.

    Raises:
        UsageError: The text is nowhere.
    """
    data = source_bytes(store.source(record.digest) or "", record.digest)
    if data is not None:
        return data
    for place in (*places, Path(record.solution_path)):
        with contextlib.suppress(OSError):
            data = read_source(place)
            if hashlib.sha256(data).hexdigest() == record.digest:
                return data
    raise UsageError(
        f"record {record.record}: its solution's file is missing or has changed, and the store does not "
        "have its exact text"
    )


@contextlib.contextmanager
def _candidate(task: ReplayTask, store: Store) -> Iterator[Candidate]:
    """Provides the record's solution for the block, from its file or from the store.

    If the file has changed, ``_candidate`` writes the text to a temporary file.

    Raises:
        UsageError: The text is nowhere.
    """
    record = task.original
    path = Path(record.solution_path)
    now: Solution | None = None
    with contextlib.suppress(SolutionError):
        now = read_solution(path, record.solution)
    if now is not None and now.digest == record.digest:
        yield Candidate(task.problem, now)
        return
    data = judged_bytes(record, store, *([task.solution] if task.solution is not None else []))
    with scratch_folder("harness-replay-") as folder:
        file = folder / (path.name if path.suffix == ".py" and task.solution is None else SOLUTION_FILE)
        file.write_bytes(data)
        yield Candidate(task.problem, read_solution(file, record.solution))
