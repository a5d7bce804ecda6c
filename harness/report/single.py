"""Describes one record completely for a person."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from harness.errors import ProblemError, SolutionError
from harness.project.cases import CUSTOM_CASE, SMALL_CASE
from harness.project.problems import read_problem
from harness.project.solutions import read_solution
from harness.records.baselines import EAGER
from harness.records.record import EvaluationRecord, TensorReport, own_share_text
from harness.records.rules import rules_text
from harness.records.run_config import STRICT, RunConfig
from harness.report.compilation import compilation_lines
from harness.report.fitness import unfit_lines
from harness.report.replay import replay_lines
from harness.report.rules import rule_lines
from harness.report.speed import speed_lines
from harness.system.text import one_line, without_commands


def sections(record: EvaluationRecord) -> Iterator[str]:
    """Yields the paragraphs about a record as plain text.

    Control characters in a candidate's output are escaped.
    """
    yield "\n".join(_head(record))
    if record.message:
        yield without_commands(record.message)
    yield from unfit_lines([record])
    if record.outputs or record.gradients:
        yield "\n".join(["tensors (error, budget; above its budget a tensor fails)", *_tensors(record)])
    if record.samples:
        yield "\n".join(["speed", *(f"  {line}" for line in speed_lines(record))])
    if record.replay:
        yield "\n".join(replay_lines(record))
    for title, found in (("further draws", record.further_draws), ("robustness", record.robustness)):
        if found:
            ends = (f"  {name}: {without_commands(end)}" for name, end in found.items())
            yield "\n".join([f"{title} (evidence only)", *ends])
    if record.kernels or record.operators or record.own_share is not None:
        yield "\n".join(["kernels of one call, as the candidate's process reported them", *kernel_use_lines(record)])
    if record.compiled is not None:
        yield "\n".join(compilation_lines(record.compiled))
    for finding in record.findings:
        where = f" in {finding.kernel}" if finding.kernel else ""
        line = f", line {finding.line}" if finding.line else ""
        yield without_commands(f"{finding.kind}{where}{line}: {finding.message}\n  {finding.remedy}")
    if record.log:
        yield "what the candidate printed\n" + _indented(without_commands(record.log))
    width = max(len(name) for name in record.environment) if record.environment else 0
    yield "\n".join(["made with", *(f"  {name:{width}}  {value}" for name, value in record.environment.items())])
    yield "\n  ".join(["to repeat it", *map(one_line, repeat_commands(record))])


def repeat_commands(record: EvaluationRecord) -> Iterator[str]:
    """Yields the command that repeats the evaluation with the same draws.

    If the solution's file does not have the judged text, a command before it writes that.
    """
    path = record.solution_path
    if not _has_judged_text(record):
        path = "judged.py"
        yield f"python -m harness show {record.record} --source > {path}"
    words = ["python", "-m", "harness", "evaluate", path, "--problem", record.problem_path]
    words += ["--device", record.device, "--seed", record.seed]
    if record.case == CUSTOM_CASE:
        for setting in record.settings or [f"{name}={value!r}" for name, value in record.constants.items()]:
            words += ["--set", setting]
    elif not _is_made(record):  # the harness makes that case again
        words += ["--case", record.case]
    config = RunConfig.of(record)
    if config.forward_only and not config.preset:
        words.append("--forward-only")
    if not config.timing:
        words.append("--no-timing")
    if config.require_confinement:
        words.append("--require-confinement")
    if config.precision != STRICT:
        words += ["--precision", config.precision]
    if config.preset:
        words += ["--preset", config.preset]
    if config.tf32:
        words += ["--tf32", config.tf32]
    if config.compat:
        words.append("--compat")
    if config.check:
        words += ["--check", "--arch", config.check]
    if config.exhaustive:
        words.append("--exhaustive")
    if config.rules:
        words += ["--rules", rules_text(config.rules)]
    for name in config.baselines if config.baselines != (EAGER,) else ():
        words += ["--baseline", name]
    for seconds, option in ((config.timeout_s, "--timeout"), (config.build_timeout_s, "--build-timeout")):
        if seconds is not None:
            words += [option, f"{seconds:g}"]
    yield shlex.join([*words, "--fresh"])


def _is_made(record: EvaluationRecord) -> bool:
    """Returns whether the harness made the case of a problem that declares none, because its own is too large."""
    if record.case != SMALL_CASE:
        return False
    try:
        return SMALL_CASE not in read_problem(Path(record.problem_path)).cases
    except ProblemError:
        return False


def _has_judged_text(record: EvaluationRecord) -> bool:
    try:
        return read_solution(Path(record.solution_path), record.solution).digest == record.digest
    except SolutionError:
        return False


def _head(record: EvaluationRecord) -> Iterator[str]:
    yield f"record {record.record} of {record.run}, {record.created_at}"
    rule = f", rule {record.rule}" if record.rule else ""
    where = f"{one_line(record.solution)} on {one_line(record.problem)}, case {record.case}, {record.device}"
    yield f"{where}: {record.verdict}{one_line(rule)}"
    if record.constants:
        yield "constants: " + ", ".join(f"{name}={value!r}" for name, value in record.constants.items())
    config = RunConfig.of(record)
    kinds = "forward only" if config.forward_only else "outputs and gradients"
    pieces = f", reference in {record.reference_pieces} pieces" if record.reference_pieces > 1 else ""
    pieces += f", its rounding errors measured on {record.shared_draws} draws" if record.shared_draws else ""
    relaxed = " (relaxed)" if config.is_relaxed else ""
    eager = record.tf32.get("eager")
    relaxed += f" (eager ran in {eager})" if eager else ""
    yield f"judged on {record.trials} trials, {kinds}, class {record.precision_class}{relaxed}{pieces}"
    yield from rule_lines([record])
    yield f"build {record.build_s:.1f} s, candidate's run {record.run_s:.1f} s, total {record.total_s:.1f} s"
    if record.stages_s:
        yield "of that " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in record.stages_s.items())
    if record.confinement:
        missing = "; ".join(f"{layer} ({why})" for layer, why in record.unconfined.items())
        held = ", ".join(layer for layer, why in record.confinement.items() if not why)
        yield one_line(f"confined by {held}" + (f"; not by {missing}" if missing else ""))
    yield f"solution {one_line(record.solution_path)} (sha256 {record.digest})"
    yield f"problem {one_line(record.problem_path)} (sha256 {record.problem_digest})"
    if record.build_log:
        there = "" if os.path.isfile(record.build_log) else " (gone)"  # noqa: PTH113 - False for any odd name
        yield one_line(f"full compiler output {record.build_log}{there}")


def _tensors(record: EvaluationRecord) -> Iterator[str]:
    for report in record.outputs:
        yield "  " + _tensor(report, report.name)
    for report in record.gradients:
        yield "  " + _tensor(report, f"gradient of {report.name}")


def _tensor(report: TensorReport, name: str) -> str:
    words = f"{'ok    ' if report.ok else 'FAILED'}  {one_line(name)} {list(report.shape)} {report.dtype}"
    figures = (report.l2_error, report.l2_budget, report.max_error, report.max_budget)
    if None not in figures:
        words += ": L2 {:.2e} of {:.2e}, maximum {:.2e} of {:.2e}".format(*figures)
    where = [f"trial {report.trial}"] if report.trial is not None else []
    where += [f"cotangent {report.cotangent}"] if report.cotangent else []
    words += f" ({', '.join(where)})" if where else ""
    words += f"; {report.counted}" if report.counted else ""
    return words + (f"; {without_commands(report.note)}" if report.note else "")


def kernel_use_lines(record: EvaluationRecord) -> Iterator[str]:
    """Yields lines about the kernels, copies and heavy operators of one call, indented."""
    if record.own_share is not None:
        yield f"  {own_share_text(record.own_share, record.device)}"
    for direction, uses in record.kernels.items():
        for use in uses:
            time = "" if use.device_ms is None else f", {use.device_ms:.4g} ms"
            whose = "its own" if use.own else "torch's"
            yield one_line(f"  {direction}: {use.name}, {use.calls} times{time}, {whose}")
        for copy in record.copies.get(direction, ()):
            time = "" if copy.device_ms is None else f", {copy.device_ms:.4g} ms"
            yield one_line(f"  {direction}: {copy.name}, {copy.calls} times{time}, a copy or fill by the driver")
        if not uses:
            yield f"  {direction}: none"
    for direction, counts in record.operators.items():
        heavy = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield one_line(f"  {direction}, heavy operators of torch and their counts: {heavy}")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
