"""Runs further draws: ordinary inputs shifted, scaled or given heavy tails, if a problem allows it.

Errors meet the same budget as in a trial, from eager's own error under the same draw. Wrong values
are a finding ``robustness``, which changes no verdict. A crash, a timeout, a write out of bounds or
another shape ends the candidate. See docs/numerics.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.errors import ProblemError
from harness.judge.case_context import CaseContext
from harness.judge.compare.explanation import explained
from harness.judge.compare.trial_result import TrialResult, badness
from harness.judge.inputs.draws import CPU, Draw, cotangents, derive_seed, draw, draw_inputs
from harness.judge.inputs.situations import Usage
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.reference.device_assertions import TriedOnCpu
from harness.judge.reference.graph import Graph
from harness.judge.reference.kinks import Kinks
from harness.judge.reference.reduced_precision import cut, mantissa_bits
from harness.judge.reference.reference import Reference
from harness.judge.trials.trial import run_trial, settle
from harness.project.problems import Problem, ProblemModule
from harness.records.record import REPORT, Finding, FurtherDraw
from harness.wire.cuda_memory import DeviceMemoryError
from harness.wire.variations import is_differentiable

ROBUSTNESS = "robustness"
#: The most declared draws that an evaluation on the emulator runs: one costs 6 to 8 % of it. A GPU
#: runs all.
MOST_ON_EMULATOR = 1
#: Number of standard deviations by which ``shifted`` moves the inputs.
SHIFT = 100.0
#: Factors of ``scaled``; float16 ends at 65504.
SCALE, SCALE_OF_HALF = 2.0**16, 2.0**6
#: Factor of ``small_variance``: values of the order of one keep a variance of 1e-6, below a usual
#: eps of 1e-5.
SMALL = 2.0**-10
#: The largest factor of ``heavy_tailed``.
LARGEST_FACTOR = 2.0**12

#: What each draw does to the inputs, in words, and a remedy for a kernel that fails under it.
_WORDS = {
    FurtherDraw.SHIFTED: (
        f"inputs {SHIFT:g} standard deviations away from zero",
        "subtract the mean before squaring: compute variances in two passes or by Welford's method, not as "
        "E[x^2] - E[x]^2",
    ),
    FurtherDraw.SCALED: (
        "inputs times a large power of two",
        "keep every value within the range of its type: subtract the largest before exp, divide before "
        "adding up, and keep sums and operands out of float16",
    ),
    FurtherDraw.SMALL_VARIANCE: (
        f"inputs times {SMALL:g}",
        "add eps where the reference adds it, and do not compare with a constant that suits only larger values",
    ),
    FurtherDraw.HEAVY_TAILED: (
        f"inputs times factors with heavy tails, up to {LARGEST_FACTOR:g}",
        "assume no bound on the inputs; keep sums in float32 or better, split into several parts",
    ),
}


@dataclass(frozen=True)
class DrawSource:
    """The source of a case's draws.

    Attributes:
        problem: The problem.
        module: The problem's body, run under the case.
        args: The constructor's arguments.
        device: The device on which draws lie.
    """

    problem: Problem
    module: ProblemModule
    args: list[Any]
    device: torch.device = CPU

    def fresh_inputs(self, seed: int) -> list[Any]:
        """Draw ordinary inputs.

        Raises:
            ProblemError: ``get_inputs`` does not run.
        """
        return draw_inputs(self.problem, self.module, seed, self.device)

    def draw(self, name: FurtherDraw, seed: int) -> Draw:
        """Make a further draw by its name.

        Raises:
            ProblemError: The constructor or ``get_inputs`` does not run.
        """
        ordinary = draw(self.problem, self.module, self.args, seed, self.device)
        return replace(ordinary, inputs=transformed(name, ordinary.inputs, derive_seed(str(seed), name)))

    def inputs(self, name: FurtherDraw, seed: int) -> list[Any]:
        """Make only the inputs of a further draw.

        Raises:
            ProblemError: ``get_inputs`` does not run.
        """
        return transformed(name, self.fresh_inputs(seed), derive_seed(str(seed), name))


def transformed(name: FurtherDraw, inputs: Sequence[Any], seed: int) -> list[Any]:
    """Transform ordinary inputs to those of a further draw; only floating tensors change.

    The mean of a tensor x is m, and its standard deviation is s. Each result is rounded once to the
    dtype of x:

    - ``shifted``: x + 100 s, or x - 100 s if m is negative: away from zero;
    - ``scaled``: x 2^16, in float16 x 2^6;
    - ``small_variance``: x 2^-10;
    - ``heavy_tailed``: x / u with u uniform in [2^-12, 1], drawn for each element. This is a Pareto
      factor, cut off at 2^12; its tail falls as slowly as Cauchy's.

    Args:
        name: The further draw.
        inputs: Arguments of ``forward``; they do not change.
        seed: Seed of the factors.

    Returns:
        The arguments, with tensors of the same shape, dtype and device.
    """
    return [
        _transformed(name, value, derive_seed(str(seed), position)) if is_differentiable(value) else value
        for position, value in enumerate(inputs)
    ]


def _transformed(name: FurtherDraw, x: torch.Tensor, seed: int) -> torch.Tensor:
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    match name:
        case FurtherDraw.SHIFTED:
            spread, mean = torch.std_mean(wide, correction=0)
            moved = wide + torch.where(mean < 0, -SHIFT, SHIFT) * spread
        case FurtherDraw.SCALED:
            moved = wide * (SCALE_OF_HALF if x.dtype == torch.float16 else SCALE)
        case FurtherDraw.SMALL_VARIANCE:
            moved = wide * SMALL
        case FurtherDraw.HEAVY_TAILED:
            generator = torch.Generator(x.device).manual_seed(seed)
            moved = wide / torch.empty_like(wide).uniform_(1 / LARGEST_FACTOR, 1, generator=generator)
    return moved.to(x.dtype)


def why_not_judged(reference: Reference, drawn: Draw, seed: int, differentiate: bool = True) -> str | None:
    """Return why a draw cannot be judged; None where it can.

    Args:
        reference: Evaluates the reference.
        drawn: The draw.
        seed: Seed of the random numbers that the forward draws, and of the cotangent.
        differentiate: Whether to test gradients, too.
    """
    if not drawn.differentiable_inputs():
        return "no input is a floating-point tensor"
    is_zero = True
    try:
        for piece in reference.exact(drawn, seed).pieces:
            graph = reference.run(drawn, seed, None, piece, watch=TriedOnCpu(), differentiate=differentiate)
            for name, tensor in _tensors(graph, seed):
                if not bool(torch.isfinite(tensor).all()):
                    return f"the reference's {name} is not finite"
            is_zero = is_zero and not any(bool(output.any()) for output in graph.outputs)
    except ProblemError as error:
        return str(error)
    return "the reference's output is zero everywhere" if is_zero else None


def _tensors(graph: Graph, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield outputs, and gradients under a normal cotangent, with their names."""
    for output in graph.outputs:
        yield "output", output.detach()
    if graph.leaves and any(output.requires_grad for output in graph.outputs):
        _, cotangent = next(cotangents(graph.outputs, seed))
        for name, gradient in graph.gradients(cotangent).items():
            if gradient is not None:
                yield f"gradient of {name}", gradient


def chosen(names: Sequence[FurtherDraw], secret: str, on_emulator: bool) -> list[FurtherDraw]:
    """Choose the declared draws that an evaluation runs: all, or on the emulator a random few.

    Args:
        names: The declared draws.
        secret: The secret of the case's seeds. Other cases run other draws.
        on_emulator: Whether the candidate runs on the emulator.
    """
    if not on_emulator or len(names) <= MOST_ON_EMULATOR:
        return list(names)
    return random.Random(derive_seed(secret, "further draws")).sample(names, MOST_ON_EMULATOR)


@dataclass(frozen=True)
class Further:
    """The results of a candidate under further draws.

    Attributes:
        ends: How each draw ended, by name.
        findings: One finding for each draw that failed.
    """

    ends: dict[str, str]
    findings: tuple[Finding, ...]


def further_trials(
    context: CaseContext,
    worker: WorkerHandle,
    clock: Clock,
    source: DrawSource,
    *,
    first_trial: int,
    progress: Callable[[str], None],
) -> Further:
    """Run one trial for each chosen draw, with gradients under the normal cotangent alone.

    Args:
        context: The case's context.
        worker: The worker of a candidate that has passed the ordinary trials.
        clock: The seconds that the candidate may use for this.
        source: The source of draws.
        first_trial: The first number that no ordinary trial has.
        progress: Called with a description of each step.

    Raises:
        CandidateStopped: The candidate failed before there were values to compare. That is a
            verdict, as in any trial.
    """
    ends: dict[str, str] = {}
    findings: list[Finding] = []
    names = chosen(source.problem.draws, context.secret, source.device.type == "cpu")
    for number, name in enumerate(names, first_trial):
        progress(f"further draw {name}")
        try:
            why, result = _trial(context, worker, clock, source, name=name, number=number)
        except (torch.OutOfMemoryError, DeviceMemoryError):
            why, result = "not enough device memory", None
        except ProblemError as error:
            why, result = str(error), None
        except CandidateStopped as stop:
            stop.message = f"under the further draw {str(name)!r} ({_WORDS[name][0]}): {stop.message}"
            raise
        ends[str(name)] = f"left out: {why}" if result is None else _end(result)
        if result is not None and result.failed:
            findings.append(_finding(name, result))
    return Further(ends, tuple(findings))


def _trial(
    context: CaseContext, worker: WorkerHandle, clock: Clock, source: DrawSource, *, name: FurtherDraw, number: int
) -> tuple[str, TrialResult | None]:
    """Return a trial's result, or why there is none."""
    seed = derive_seed(context.secret, "further draw", name)
    drawn = source.draw(name, seed)
    bits = mantissa_bits(context.precision)
    # Without cutting, the licence to round operands would hide errors behind the product.
    if bits is not None:
        drawn = cut(drawn, bits)
    if context.kinks is not None:
        kinks = Kinks(
            context.reference, context.precision, lambda other: source.inputs(name, other), context.known.steps
        )
        context = replace(context, kinks=kinks)
    settled = settle(context, drawn, number)
    usage = Usage(fill=number)
    result = run_trial(context, worker, clock, settled, number, thread_order="forward", normal_only=True, usage=usage)
    # A result that passed has finite gradients, so only a failed one needs the second test.
    judged = settled if isinstance(settled, Draw) else settled.draw
    looks = bool(result.failed)
    why = context.known.reason((name, looks), judged, lambda: why_not_judged(context.reference, judged, seed, looks))
    return ("", result) if why is None else (why, None)


def _end(result: TrialResult) -> str:
    worst = max((*result.outputs, *result.gradients), key=badness)
    share = "" if worst.share is None else f", {worst.share:.2g} of its budget"
    return f"{'failed' if result.failed else 'passed'} ({worst.name}{share})"


def _finding(name: FurtherDraw, result: TrialResult) -> Finding:
    words, remedy = _WORDS[name]
    failed = sorted(result.failed, key=badness, reverse=True)
    # The class would follow from the size of the error, which has another cause here.
    told = explained(failed[0], replace(result, lower_class={}))
    others = f"; {', '.join(report.name for report in failed[1:])} also" if failed[1:] else ""
    return Finding(
        ROBUSTNESS,
        kernel=None,
        line=None,
        accesses=(),
        remedy=remedy,
        message=f"under the further draw {str(name)!r} ({words}): {told}{others}",
        level=REPORT,
    )


def declared_draws(source: DrawSource, reference: Reference, seed: int) -> Iterator[tuple[bool, str]]:
    """Check that the reference works under the draws that its problem declares.

    Yields:
        Whether it does, and a message: one for each draw under which it does not, and one for all
            others.
    """
    fine = []
    for name in source.problem.draws:
        why = why_not_judged(reference, source.draw(name, derive_seed(str(seed), name)), seed)
        if why is None:
            fine.append(str(name))
        else:
            yield False, f"{name}: {why}; take it out of DRAWS"
    if fine:
        yield True, f"outputs and gradients are finite under {', '.join(fine)}"
