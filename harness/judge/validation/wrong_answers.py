"""Checks that the problem can tell right from wrong: runs wrong answers through the comparison.

The draws are made as for a trial. An answer passes if it passes in every trial; two trials stand
for all of them here. docs/write-a-problem.md lists the checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.judge.compare.comparison import Comparison
from harness.judge.compare.received import ReceivedGradients
from harness.judge.compare.trial_result import badness
from harness.judge.inputs.copying import copied
from harness.judge.inputs.draws import Draw, cotangents
from harness.judge.reference.device_assertions import TriedOnCpu
from harness.judge.reference.equivalence import deviation, magnitude, relative
from harness.judge.reference.graph import Graph, differentiable_leaves
from harness.judge.reference.kinks import Kinks, Settled
from harness.judge.reference.reduced_precision import CUT_TRIALS, Rounding, cut, cut_inputs, mantissa_bits
from harness.judge.reference.reference import Reference
from harness.judge.validation.check_types import CheckFinding
from harness.records.record import PrecisionClass, TensorReport

Outputs = Sequence[torch.Tensor]
#: Range in which float32 holds a gradient times its leaf over the outputs, all as RMS. Beyond it
#: squares overflow.
GRADIENT_RANGE = (1e-12, 1e12)
#: From this budget on zeros may pass for a gradient: their own relative L2 error is 1.
_WIDE = 0.5
#: Elements below this share of the RMS are small. An answer without them is tried where more than one
#: in so many elements is.
SMALL, FEW_SMALL = 1e-3, 16
#: Float64 runs differ by less with another order of sums, and by more with rounded products.
_FLOAT64_NOISE = 2.0**-45


class Trials:
    """The draws and comparisons by which wrong answers are judged.

    Args:
        reference: Evaluates the reference with graphs.
        forward: Evaluates the reference without graphs.
        precision: The precision class whose budgets apply.
        draws: Three draws as the problem makes them.
        seed: Seed of the random numbers that the forward draws.
        kinks: Settles draws; None if the reference has no kinks.
    """

    def __init__(
        self,
        reference: Reference,
        forward: Reference,
        precision: PrecisionClass,
        draws: Sequence[Draw],
        *,
        seed: int,
        kinks: Kinks | None,
    ):
        self.reference = reference
        self.forward = forward
        self.precision = precision
        self.draws = draws
        self.seed = seed
        self._kinks = kinks
        self._settled: dict[int, tuple[Draw, Settled | None]] = {}
        self._comparisons: dict[int, tuple[Comparison, list[TensorReport]]] = {}

    def settled(self, number: int) -> tuple[Draw, Settled | None]:
        """Return a trial's draw as the judge makes it: cut in lower classes, moved away from kinks."""
        if number not in self._settled:
            draw = self.draws[number]
            bits = mantissa_bits(self.precision)
            if bits is not None and number in CUT_TRIALS:
                draw = cut(replace(draw, model=copied(draw.model)), bits)
            settled = None if self._kinks is None else self._kinks.settle(draw, self.seed)
            self._settled[number] = (draw if settled is None else settled.draw), settled
        return self._settled[number]

    def outputs(self, draw: Draw, rows: torch.Tensor | None = None) -> list[torch.Tensor]:
        """Return eager's outputs on a draw, or on some of its samples."""
        is_own = rows is None and any(draw is one for one in self.draws)
        return self.forward.run(draw, self.seed, None, rows, watch=TriedOnCpu(is_own)).outputs

    def of_trial(self, number: int) -> tuple[Comparison, list[TensorReport]]:
        """Return the ``comparison`` of a trial, made once."""
        if number not in self._comparisons:
            self._comparisons[number] = self.comparison(*self.settled(number))
        return self._comparisons[number]

    def comparison(self, draw: Draw, settled: Settled | None = None) -> tuple[Comparison, list[TensorReport]]:
        """Make a comparison for outputs on a draw; also return its reports on eager's outputs."""
        comparison = Comparison(self.forward, draw, self.seed, [], self.precision, trial=0, settled=settled)
        comparison.add(self.outputs(draw))
        return comparison, comparison.result().outputs


class _Wrong(NamedTuple):
    """A wrong answer: its name, and its outputs by place (the others are right)."""

    what: str
    outputs: Mapping[int, torch.Tensor]


class _Judged(NamedTuple):
    """The verdict on one output of a wrong answer."""

    what: str
    place: int
    report: TensorReport


def answers(trials: Trials) -> Iterator[CheckFinding]:
    """Check that answers which ignore inputs fail, and that eager's own answer passes."""
    _, reports = trials.of_trial(0)
    for place, report in enumerate(reports):
        if not report.ok:
            yield CheckFinding(
                False, f"eager's own answer would fail as {output_words(place, len(reports))}: {figures(report)}"
            )
    judged, passed = _judged_answers(trials, _wrong_answers, jointly=False)
    for what, place, report in passed:
        yield CheckFinding(False, f"{what} would pass as {output_words(place, len(reports))}: {figures(report)}")
    if judged and not passed:
        yield CheckFinding(
            True,
            "zeros, a constant, the inputs, other draws' answers and other samples' answers fail; the "
            f"closest, {_closest(judged)}",
        )


def precision_class(trials: Trials) -> Iterator[CheckFinding]:
    """Check that an answer of the next lower class fails: rounded products, and stored outputs."""
    classes = list(PrecisionClass)
    lower = classes[classes.index(trials.precision) + 1 :]
    bits = mantissa_bits(lower[0]) if lower else None
    if bits is None:
        yield CheckFinding(True, f"{trials.precision} is the lowest class: there is no lower one to compare with")
        return

    def coarse(trials: Trials, number: int, draw: Draw, right: Outputs) -> Iterator[_Wrong]:
        floating = [place for place, output in enumerate(right) if output.is_floating_point()]
        rounded = _by_rounded_products(trials, draw, bits, right)
        if rounded is not None:
            what = f"the result with operands of products rounded to {lower[0]}"
            yield _Wrong(what, {place: rounded[place] for place in floating})
        stored = cut_inputs(right, bits)
        yield _Wrong(f"the answer stored in {lower[0]}", {place: stored[place] for place in floating})

    reports, passed = _judged_answers(trials, coarse, jointly=True)
    if not reports:
        yield CheckFinding(True, "no output is a floating-point tensor, so it has no precision class")
    _, eager = trials.of_trial(0)
    for what, place, report in passed:
        own = f"eager's has {eager[place].l2_error or 0:.1e}"
        yield CheckFinding(
            None, f"{what} would pass: {figures(report)}, {own}: the check cannot distinguish the classes"
        )
    if reports and not passed:
        yield CheckFinding(True, f"answers of class {lower[0]} fail; the closest, {_closest(reports)}")


def gradients(trials: Trials, told: Collection[str]) -> Iterator[CheckFinding]:
    """Check that eager's gradients pass, that zeros fail, and that float32 holds their size.

    Args:
        trials: The draws and comparisons.
        told: Leaves whose gradients are known to say nothing.
    """
    draw, settled = trials.settled(0)
    graph = trials.reference.eager(draw, trials.seed)
    if not any(output.requires_grad for output in graph.outputs) or not graph.leaves:
        yield CheckFinding(True, "the reference has no gradients to judge")
        return
    first = graph.gradients(next(cotangents(graph.outputs, trials.seed))[1])
    leaves = differentiable_leaves(first)
    reports = _judged_gradients(trials, draw, settled, graph, leaves, zeros=False)
    fine = True
    for found in (*_unfit_gradients(first, reports), *_sizes(graph, first, told)):
        fine = False
        yield found
    wide = [
        name
        for name, report in reports.items()
        if name not in told and (report.l2_budget or 0) + (report.sensitivity or 0) > _WIDE
    ]
    if wide:
        for name, report in _judged_gradients(trials, draw, settled, graph, wide, zeros=True).items():
            if report.ok:
                fine = False
                yield CheckFinding(None, f"zeros would pass for the gradient of {name}: {figures(report)}")
    if fine:
        worst = max(reports.values(), key=lambda report: report.l2_budget or 0)
        yield CheckFinding(
            True,
            f"eager's gradients pass, zeros do not; the widest budget, of {worst.name}, is {worst.l2_budget or 0:.1e}",
        )


def figures(report: TensorReport) -> str:
    """Describe the figures that decided."""
    if report.l2_error is None or report.l2_budget is None:
        return "equal" if report.ok else report.note
    if report.ok or report.l2_error > report.l2_budget or report.max_error is None:
        return f"relative L2 error {report.l2_error:.1e}, budget {report.l2_budget:.1e}"
    return f"largest error over the RMS {report.max_error:.1e}, budget {report.max_budget:.1e}"


def output_words(place: int, count: int) -> str:
    """Return the name of an output in messages."""
    return "the output" if count == 1 else f"output[{place}]"


_Source = Callable[[Trials, int, Draw, Outputs], Iterator[_Wrong]]


def _judged_answers(trials: Trials, source: _Source, jointly: bool) -> tuple[list[_Judged], list[_Judged]]:
    """Judge wrong answers; return all verdicts, and those of answers that pass in every trial.

    Args:
        trials: The draws and comparisons.
        source: Makes the wrong answers.
        jointly: Whether an answer passes only with all of its outputs. Its worst output then
            represents it.
    """
    first = _reports(trials, source, 0, None)
    passed = _passing(first, jointly)
    if passed:
        again = {one.what for one in passed}
        kept = {one[:2] for one in _passing(_reports(trials, source, 1, again), jointly)}
        names = {what for what, _ in kept}
        passed = [one for one in passed if (one.what in names if jointly else one[:2] in kept)]
    return first, passed


def _passing(reports: Sequence[_Judged], jointly: bool) -> list[_Judged]:
    if not jointly:
        return [one for one in reports if one.report.ok]
    worst: dict[str, _Judged] = {}
    for one in reports:
        if one.what not in worst or badness(one.report) > badness(worst[one.what].report):
            worst[one.what] = one
    return [one for one in worst.values() if one.report.ok]


def _closest(reports: Sequence[_Judged]) -> str:
    """Describe the answer whose errors are nearest to their budgets."""
    least = min(reports, key=lambda one: one.report.share if one.report.share is not None else math.inf)
    return f"{least.what}, has {figures(least.report)}"


def _reports(trials: Trials, source: _Source, number: int, wanted: Collection[str] | None) -> list[_Judged]:
    """Judge the wrong answers in a trial: all of them, or some by name."""
    draw, _ = trials.settled(number)
    right = trials.outputs(draw)
    comparison, _ = trials.of_trial(number)
    found = []
    for wrong in source(trials, number, draw, right):
        places = [place for place in wrong.outputs if right[place].numel()]
        if places and (wanted is None or wrong.what in wanted):
            reports = comparison.of_other_outputs(
                [wrong.outputs.get(place, output) for place, output in enumerate(right)]
            )
            found += [_Judged(wrong.what, place, reports[place]) for place in places]
    return found


def _wrong_answers(trials: Trials, number: int, draw: Draw, right: Outputs) -> Iterator[_Wrong]:
    yield _Wrong("zeros", {place: output.new_zeros(()).expand_as(output) for place, output in enumerate(right)})
    # All trials use one constant. A candidate cannot know the mean of a draw, which for a single
    # number is the answer.
    known = right if number == 0 else trials.outputs(trials.settled(0)[0])
    constants = {
        place: _constant(known[place]).expand_as(output)
        for place, output in enumerate(right)
        if known[place].numel() and output.numel()
    }
    yield _Wrong("a constant", constants)
    names = draw.input_names()
    for position, value in enumerate(draw.inputs):
        if isinstance(value, torch.Tensor):
            form = (value.shape, value.dtype)
            alike = {
                place: value.detach() for place, output in enumerate(right) if (output.shape, output.dtype) == form
            }
            yield _Wrong(f"the input {names.get(position, position)}", alike)
    other = trials.outputs(trials.draws[number + 1])
    yield _Wrong("the answer to another draw", dict(enumerate(other)))
    large = {place: _large_alone(output) for place, output in enumerate(right)}
    what = "the answer, with zeros for its small elements"
    yield _Wrong(what, {place: one for place, one in large.items() if one is not None})
    batch = draw.batch
    if batch is not None and any(_has_values(value, batch) for value in draw.inputs):
        first = trials.outputs(draw, torch.zeros(batch, dtype=torch.long))
        of_samples = {
            place: one for place, one in enumerate(first) if right[place].dim() and right[place].shape[0] == batch
        }
        yield _Wrong("the first sample's answer for all samples", of_samples)


def _has_values(value: object, batch: int) -> bool:
    """Return False for what has one value alone, such as zeros: that samples share it is no flaw."""
    if not isinstance(value, torch.Tensor) or not value.dim() or value.shape[0] != batch or not value.numel():
        return False
    return not torch.equal(value, value.flatten()[0].expand_as(value))


def _constant(output: torch.Tensor) -> torch.Tensor:
    """Return the best constant as a scalar: the mean, or the most frequent integer or truth value."""
    if not output.is_floating_point():
        return output.flatten().mode().values
    finite = output[torch.isfinite(output)]
    return finite.mean(dtype=torch.float64).to(output.dtype)


def _large_alone(output: torch.Tensor) -> torch.Tensor | None:
    """Return an output with zeros for all far below its RMS; None where these are few, or zeros already."""
    if not output.is_floating_point():
        return None
    small = (output.abs() < SMALL * magnitude(output.to(torch.float64)).rms) & (output != 0)
    if int(small.sum()) * FEW_SMALL < output.numel():
        return None
    return output.masked_fill(small, 0.0)


def _by_rounded_products(trials: Trials, draw: Draw, bits: int, right: Outputs) -> list[torch.Tensor] | None:
    """Run in float64 with rounded operands of products; None if that changes no output."""
    parts: list[list[torch.Tensor]] = []
    changes = False
    for piece in trials.forward.exact(draw, trials.seed).pieces:
        exact = trials.forward.run(draw, trials.seed, torch.float64, piece).outputs
        with sdpa_kernel(SDPBackend.MATH):
            mode = Rounding(bits, to_nearest=True)
            rounded = trials.forward.run(draw, trials.seed, torch.float64, piece, watch=mode).outputs
        changes |= any(
            relative(deviation(one, other), magnitude(other)).l2 > _FLOAT64_NOISE
            for one, other in zip(rounded, exact, strict=True)
            if other.is_floating_point()
        )
        parts.append([one.to(other.dtype) for one, other in zip(rounded, right, strict=True)])
    if not changes:
        return None
    return parts[0] if len(parts) == 1 else [torch.cat(pieces) for pieces in zip(*parts, strict=True)]


def _judged_gradients(
    trials: Trials, draw: Draw, settled: Settled | None, graph: Graph, leaves: Sequence[str], *, zeros: bool
) -> dict[str, TensorReport]:
    """Judge eager's own gradients, or zeros in their place."""
    comparison = Comparison(trials.reference, draw, trials.seed, leaves, trials.precision, trial=0, settled=settled)
    kept: list[ReceivedGradients] = []
    for name, cotangent in cotangents(graph.outputs, trials.seed):
        own = graph.gradients(cotangent)
        given = {leaf: own[leaf] for leaf in leaves}
        kept.append(
            ReceivedGradients(
                name,
                cotangent,
                {
                    leaf: gradient.new_zeros(()).expand_as(gradient) if zeros else gradient
                    for leaf, gradient in given.items()
                    if gradient is not None
                },
            )
        )
        if not trials.reference.has_room_beside(kept[-1].bytes):
            comparison.add(None, kept)
            kept = []
    if kept:
        comparison.add(None, kept)
    return {report.name: report for report in comparison.result().gradients}


def _unfit_gradients(
    first: Mapping[str, torch.Tensor | None], reports: Mapping[str, TensorReport]
) -> Iterator[CheckFinding]:
    for name, report in reports.items():
        gradient = first[name]
        broken = 0 if gradient is None else gradient.numel() - int(torch.isfinite(gradient).sum())
        words = f"; {broken} of its elements are NaN or infinite" if broken else ""
        if not report.ok:
            yield CheckFinding(False, f"eager's own gradient of {name} would fail: {figures(report)}{words}")
        elif broken:
            yield CheckFinding(None, f"the gradient of {name}: {broken} of its elements are NaN or infinite")


def _sizes(graph: Graph, first: Mapping[str, torch.Tensor | None], told: Collection[str]) -> Iterator[CheckFinding]:
    """Find gradients that vanish or explode: times their leaf, over the outputs."""
    scale = max(magnitude(output.detach()).rms for output in graph.outputs if output.requires_grad)
    least, most = GRADIENT_RANGE
    for name, gradient in first.items():
        if gradient is None or name in told or not scale or not bool(torch.isfinite(gradient).all()):
            continue
        size = magnitude(gradient).rms
        ratio = size * (magnitude(graph.leaves[name].detach()).rms or 1.0) / scale
        if not least <= ratio <= most:
            what = "vanishes" if ratio < least else "explodes"
            words = f"its RMS {size:.1e}, times that of {name}, is {ratio:.1e} of the outputs'"
            yield CheckFinding(None, f"the gradient of {name} {what}: {words}")
