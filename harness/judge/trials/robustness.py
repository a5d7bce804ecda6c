"""Calls a candidate beyond the problem's inputs: other batch, layout, signs, sizes and mode, NaN and infinity.

A problem does not promise such calls, so nothing here changes a verdict. A candidate that fails
gets a finding ``robustness``. These checks come last, so whatever they do to the process harms
nothing.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from harness.errors import ProblemError
from harness.judge.case_context import CaseContext
from harness.judge.compare.budgets import is_floating
from harness.judge.compare.explanation import explained
from harness.judge.compare.trial_result import TrialResult, badness
from harness.judge.exchange.exchange import Exchange
from harness.judge.inputs.changes import LARGE, enlarged, partly_zero, reduced, with_both_signs, with_extremes_at_ends
from harness.judge.inputs.copying import copied
from harness.judge.inputs.draws import Draw, derive_seed, draw
from harness.judge.inputs.situations import Usage
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.process.faults import Faults
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.reference.device_assertions import TriedOnCpu
from harness.judge.reference.kinks import Settled
from harness.judge.trials.further_draws import ROBUSTNESS, DrawSource
from harness.judge.trials.trial import forward_seed, received_outputs, run_trial, settle
from harness.records.record import REPORT, Finding, Status
from harness.system.text import one_line, shortened
from harness.wire.arena import region_bytes
from harness.wire.commands import DEEP_COPY, EVALUATION, LARGER_BATCH
from harness.wire.cuda_memory import DeviceMemoryError
from harness.wire.structure import paths_of
from harness.wire.tensors import Region, Value
from harness.wire.variations import is_differentiable

#: The most input elements of a small case. One limit is for the emulator, one for a GPU.
FEW_ELEMENTS, FEW_ELEMENTS_OF_GPU = 1 << 16, 1 << 27
#: Seconds after which no further check begins: of the candidate's own work, and in a larger case of all work.
ENOUGH_S, ENOUGH_OF_LARGE_S = 3.0, 0.5
#: Samples count as independent if others change their results by no more than this share.
LIKE = 1e-2
#: The most characters kept of a candidate's own message.
MAX_WORDS = 300
#: Ends after which the same process can go on. On a GPU no end counts as harmless, since it may
#: leave an error.
_HARMLESS = frozenset({Status.RUNTIME_ERROR, Status.WRONG_OUTPUT, Status.NO_GRADIENT, Status.UNSUPPORTED})


class LeftOut(Exception):
    """A check that does not apply to this problem; the message says why."""


@dataclass(frozen=True)
class _Calls:
    """The common data of a case's checks.

    Attributes:
        context: The case's context, with faults of its own.
        worker: The candidate's worker.
        clock: The seconds that the candidate may use.
        source: The source of draws.
        settled: The first trial's draw.
    """

    context: CaseContext
    worker: WorkerHandle
    clock: Clock
    source: DrawSource
    settled: Draw | Settled

    @property
    def draw(self) -> Draw:
        """The first trial's draw as it was judged."""
        return self.settled.draw if isinstance(self.settled, Settled) else self.settled


@dataclass(frozen=True)
class Robustness:
    """The results of a case's checks.

    Attributes:
        ends: How each check ended, by its name.
        findings: One finding for each check that failed.
        is_upset: Whether the candidate's process may be of no further use.
    """

    ends: dict[str, str]
    findings: tuple[Finding, ...] = ()
    is_upset: bool = False


def robustness_checks(
    context: CaseContext,
    worker: WorkerHandle,
    clock: Clock,
    source: DrawSource,
    *,
    seed: int,
    progress: Callable[[str], None],
) -> Robustness:
    """Call a candidate that passed in ways beyond the problem's own inputs.

    Outputs are judged; in evaluation mode gradients, too.

    Args:
        context: The case's context, for draws that the candidates of a batch share.
        worker: The candidate's worker.
        clock: The seconds that the candidate may use for this.
        source: The source of draws.
        seed: Seed of the first trial's draw.
        progress: Called with a description of each step.
    """
    context = replace(context, faults=Faults(context.faults.is_checked))
    ends: dict[str, str] = {}
    findings: list[Finding] = []
    is_upset = False
    try:
        first = draw(source.problem, source.module, source.args, seed, source.device)
        calls = _Calls(context, worker, clock, source, settle(context, first, 0))
    except (torch.OutOfMemoryError, DeviceMemoryError):
        return Robustness({})
    is_small = _is_small(calls.draw, source.device.type == "cpu")
    enough_s, began = ENOUGH_S if is_small else ENOUGH_OF_LARGE_S, time.monotonic()
    for name in random.Random(derive_seed(context.secret, ROBUSTNESS)).sample(list(_CHECKS), len(_CHECKS)):
        check, words, remedy = _CHECKS[name]
        if ends and (clock.run_s if is_small else time.monotonic() - began) > enough_s:
            ends[name] = f"left out: those before it took longer than {enough_s:g} s"
            continue
        progress(f"called with {words}")
        try:
            fault = check(calls)
            ends[name] = f"failed: {fault}" if fault else "passed"
        except (torch.OutOfMemoryError, DeviceMemoryError):
            ends[name] = "left out: not enough device memory"
        except (LeftOut, ProblemError) as error:
            ends[name] = f"left out: {one_line(str(error))}"
        except CandidateStopped as stop:
            ends[name], fault = _end_of(stop, name)
            is_upset = source.device.type != "cpu" or stop.status not in _HARMLESS
        if ends[name].startswith("failed"):
            message = f"called with {words}: {fault}"
            findings.append(
                Finding(ROBUSTNESS, kernel=None, line=None, accesses=(), remedy=remedy, message=message, level=REPORT)
            )
        if is_upset:
            break
    return Robustness({name: ends[name] for name in _CHECKS if name in ends}, tuple(findings), is_upset)


def _end_of(stop: CandidateStopped, name: str) -> tuple[str, str]:
    """Describe how a check without values ended, and the fault, if that is one."""
    said = shortened(one_line(stop.message), MAX_WORDS)
    if stop.status is Status.OUT_OF_MEMORY:
        return f"left out: {said}", ""
    if stop.status is Status.RUNTIME_ERROR and name == LAYOUT:
        return f"refused: {said}", ""
    fault = f"it ended with {stop.status}: {said}"
    return f"failed: {fault}", fault


def _is_small(drawn: Draw, on_emulator: bool) -> bool:
    elements = sum(value.numel() for value in drawn.inputs if isinstance(value, torch.Tensor))
    return elements <= (FEW_ELEMENTS if on_emulator else FEW_ELEMENTS_OF_GPU)


def _signs(calls: _Calls) -> str:
    """Give both signs to inputs that the problem draws with one."""
    inputs, seed = [], derive_seed(calls.context.secret, "signs")
    for position, value in enumerate(calls.draw.inputs):
        is_one_sided = (
            is_differentiable(value) and value.numel() > 1 and (bool((value >= 0).all()) or bool((value <= 0).all()))
        )
        inputs.append(with_both_signs(value, derive_seed(str(seed), position)) if is_one_sided else value)
    if all(one is other for one, other in zip(inputs, calls.draw.inputs, strict=True)):
        raise LeftOut("the problem draws no input of only one sign")
    drawn = replace(calls.draw, inputs=inputs)
    _require_telling(calls, drawn)
    return _told(_judged(calls, calls.context, drawn, "signs"))


def _batch(calls: _Calls) -> str:
    """Give half of the batch."""
    drawn, exchange = calls.draw, calls.context.exchange
    batch = drawn.batch
    if batch is None:
        raise LeftOut("no input has a batch that can be halved")
    rows = batch // 2
    inputs = [
        value[:rows].clone() if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == batch else value
        for value in drawn.inputs
    ]
    for position, (value, old) in enumerate(zip(inputs, drawn.inputs, strict=True)):
        if value is old and _points_beyond(value, rows):
            raise LeftOut(f"input {position} holds integers that may point beyond half of the batch")
    smaller = replace(drawn, inputs=inputs)
    outputs = calls.context.reference.run(smaller, 0, None, None, differentiate=False, watch=TriedOnCpu()).outputs
    regions = [
        replace(region, shape=tuple(output.shape)) for region, output in zip(exchange.outputs, outputs, strict=True)
    ]
    fits = [region_bytes(one.shape, one.dtype) <= region_bytes(other.shape, other.dtype)
            for one, other in zip(regions, exchange.outputs, strict=True)]  # fmt: skip
    if not all(fits):
        raise LeftOut("the reference's output grows when the batch shrinks")
    values = [
        _moved(place, tuple(value.shape)) if isinstance(value, torch.Tensor) else place
        for place, value in zip(exchange.inputs, inputs, strict=True)
    ]
    placed = _placed(exchange, values, regions)
    return _told(_judged(calls, replace(calls.context, exchange=placed), smaller, "batch"))


def _points_beyond(value: Any, rows: int) -> bool:
    """Return whether a value may be indices or offsets of more than so many rows."""
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
        return False
    return value.dtype is not torch.bool and value.numel() > 0 and int(value.max()) >= rows


def _larger_batch(calls: _Calls) -> str:
    """Give twice as many samples, the problem's own behind others."""
    drawn, reference = calls.draw, calls.context.reference
    batch = drawn.batch
    if batch is None:
        raise LeftOut("no input has a batch to extend")
    if reference.changes:
        raise LeftOut("forward changes buffers, which another batch changes otherwise")
    inputs = [
        torch.cat([value.flip(0), value])
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == batch
        else value
        for value in drawn.inputs
    ]
    ordinary = reference.run(drawn, 0, None, None, differentiate=False).outputs
    twice = replace(drawn, inputs=inputs)
    larger = reference.run(twice, 0, None, None, differentiate=False, watch=TriedOnCpu()).outputs
    for one, other in zip(ordinary, larger, strict=True):
        expected = (2 * batch, *one.shape[1:])
        if not one.dim() or len(one) != batch or other.shape != expected or not _is_like(other[batch:], one):
            raise LeftOut("the reference's samples depend on each other")
    return _told(_judged(calls, calls.context, calls.settled, None, (LARGER_BATCH,)))


def _is_like(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    tensor, other = tensor.detach().double(), other.detach().double()
    finite = other.abs()[other.isfinite()]
    size = float(finite.mean()) if finite.numel() else 0.0
    return torch.allclose(tensor, other, rtol=LIKE, atol=LIKE * size, equal_nan=True)


def _layout(calls: _Calls) -> str:
    """Give inputs whose dimensions lie in memory in reverse order."""
    if calls.context.reference.is_random:
        raise LeftOut("the reference draws random numbers, whose order follows the layout")
    exchange = calls.context.exchange
    values = [_reversed(place) for place in exchange.inputs]
    if all(value.region is None or sum(extent > 1 for extent in value.region.shape) < 2 for value in values):
        raise LeftOut("no input has two dimensions")
    placed = _placed(exchange, values, exchange.outputs)
    return _told(_judged(calls, replace(calls.context, exchange=placed), calls.settled, None))


def _not_finite(calls: _Calls) -> str:
    """Give a NaN and an infinity in each floating input; eager's NaNs must not come back finite."""
    context, inputs = calls.context, []
    choose = random.Random(derive_seed(context.secret, "not finite"))
    for value in calls.draw.inputs:
        if is_differentiable(value) and value.numel() > 1:
            value = value.clone(memory_format=torch.contiguous_format)
            first, second = choose.sample(range(value.numel()), 2)
            value.view(-1)[first], value.view(-1)[second] = float("nan"), float("inf")
        inputs.append(value)
    drawn = replace(calls.draw, inputs=inputs)
    if not drawn.differentiable_inputs():
        raise LeftOut("no input is a floating-point tensor")
    seed = forward_seed(context, 0)
    expected = context.reference.run(drawn, seed, None, None, differentiate=False, watch=TriedOnCpu()).outputs
    received = received_outputs(context, calls.worker, calls.clock, drawn)
    for path, mine, theirs in zip(paths_of(context.structure), received, expected, strict=True):
        if theirs.is_floating_point():
            is_finite, is_expected = mine.isfinite(), theirs.isfinite()
            if lost := int((~is_expected & is_finite).sum()):
                total = int((~is_expected).sum())
                return f"{path}: {total} elements of eager's result are NaN or infinite; {lost} of them are finite here"
            if spread := int((is_expected & ~is_finite).sum()):
                return f"{path}: {spread} elements are NaN or infinite here, and finite in eager's result"
    return ""


def _changed(name: str, change: Callable[[torch.Tensor, int], torch.Tensor], calls: _Calls) -> str:
    """Judge the candidate on floating inputs that a function changes, which takes a seed, too."""
    inputs, seed = [], derive_seed(calls.context.secret, name)
    for position, value in enumerate(calls.draw.inputs):
        if is_differentiable(value) and value.dim() and value.numel():
            value = change(value, derive_seed(str(seed), position))
        inputs.append(value)
    drawn = replace(calls.draw, inputs=inputs)
    if not drawn.differentiable_inputs():
        raise LeftOut("no input is a floating-point tensor")
    _require_telling(calls, drawn)
    return _told(_judged(calls, calls.context, drawn, name))


def _require_telling(calls: _Calls, drawn: Draw) -> None:
    outputs = calls.context.reference.run(drawn, 0, None, None, differentiate=False, watch=TriedOnCpu()).outputs
    if not all(bool(output.isfinite().all()) for output in outputs):
        raise LeftOut("the reference's output would not be finite")
    if any(is_differentiable(output) and output.numel() and not bool(output.any()) for output in outputs):
        raise LeftOut("the reference's output would be zero everywhere")


def _evaluation(calls: _Calls) -> str:
    """Call a copy of the model in evaluation mode, and run its backward, where the reference gives something else."""
    if EVALUATION not in calls.context.unsupported:
        raise LeftOut("the reference returns the same in evaluation mode, and the trials have judged that")
    model = copied(calls.draw.model)
    try:
        model.eval()
    except Exception as error:  # of a method of the problem's own
        raise LeftOut(f"Model.eval() raised {type(error).__name__}: {error}") from None
    drawn = replace(calls.draw, model=model)
    _require_telling(calls, drawn)
    return _told(_judged(calls, calls.context, drawn, MODE, (EVALUATION, DEEP_COPY), without_gradients=False))


def _judged(
    calls: _Calls,
    context: CaseContext,
    drawn: Draw | Settled,
    name: str | None,
    ways: tuple[str, ...] = (),
    *,
    without_gradients: bool = True,
) -> TrialResult:
    """Judge one forward, with its backward if that is asked for.

    The name sets the trial number, which tells the draw from the first trial's. None means that
    draw, whose gauges are known.
    """
    number = 0 if name is None else -1 - [*_CHECKS].index(name)
    usage = Usage(without_gradients=without_gradients, ways=ways, fill=number)
    result = run_trial(
        context,
        calls.worker,
        calls.clock,
        drawn,
        number,
        thread_order="forward",
        normal_only=True,
        usage=usage,
    )
    whole = {report.name for report in result.outputs if not (report.ok or is_floating(report.dtype))}
    if whole:
        as_eager = whole & _equal_to_eager(calls, context, drawn, usage)
        result.outputs = [replace(one, ok=True) if one.name in as_eager else one for one in result.outputs]
    return result


def _equal_to_eager(calls: _Calls, context: CaseContext, drawn: Draw | Settled, usage: Usage) -> set[str]:
    """Return the outputs that equal eager's. Of integers, such as indices, rounding may decide in both alike."""
    plain = drawn.draw if isinstance(drawn, Settled) else drawn
    received = received_outputs(context, calls.worker, calls.clock, plain, usage)
    seed = forward_seed(context, 0)
    expected = context.reference.run(plain, seed, None, None, differentiate=False, watch=TriedOnCpu()).outputs
    named = zip(paths_of(context.structure), received, expected, strict=True)
    return {path for path, mine, theirs in named if torch.equal(mine, theirs)}


def _told(result: TrialResult) -> str:
    """Describe what is wrong on one line; empty where nothing is."""
    if not result.failed:
        return ""
    lines = explained(max(result.failed, key=badness), replace(result, lower_class={})).splitlines()
    return one_line("; ".join(map(str.strip, lines)))


def _moved(place: Value, shape: tuple[int, ...]) -> Value:
    """Describe a smaller tensor at the same place in the arena."""
    return place if place.region is None else Value(replace(place.region, shape=shape), None)


def _reversed(place: Value) -> Value:
    """Describe the same tensor with its dimensions in reverse order in memory."""
    if place.region is None:
        return place
    order = place.region.order or range(len(place.region.shape))
    return Value(replace(place.region, order=tuple(reversed(order))), None)


def _placed(exchange: Exchange, inputs: Sequence[Value], outputs: Sequence[Region]) -> Exchange:
    """Copy an exchange, with other inputs and outputs at the same places in its arena."""
    other = copy.copy(exchange)
    other.inputs, other.outputs = tuple(inputs), tuple(outputs)
    return other


LAYOUT, MODE = "layout", "evaluation mode"
_SIZES = "take every size from the input, in every call"
_CHECKS: dict[str, tuple[Callable[[_Calls], str], str, str]] = {
    "signs": (
        _signs,
        "inputs of both signs, although the problem draws only one",
        "compute what the reference computes for every input, not only for those that the problem draws",
    ),
    "batch": (_batch, "half of the batch", _SIZES),
    "larger batch": (_larger_batch, "twice the batch", _SIZES),
    LAYOUT: (
        _layout,
        "inputs with their dimensions stored in reverse order (x.t().contiguous().t())",
        "call .contiguous() before a kernel reads a tensor by its pointer, or check the strides and raise an error",
    ),
    "not finite": (
        _not_finite,
        "a NaN and an infinity in each input",
        "propagate NaN: fmaxf, fminf and comparisons drop it, torch's operators do not",
    ),
    "large": (
        partial(_changed, "large", enlarged),
        f"inputs {LARGE:g} times as large, the first and the last element above all",
        "subtract the maximum before an exponential, keep the bounds of clamps, and let sums reach the last element",
    ),
    "small": (
        partial(_changed, "small", reduced),
        "inputs 1/1024 times as large",
        "keep each eps where the reference has it, and use log1pf and expm1f where results are near zero",
    ),
    "ends": (
        partial(_changed, "ends", with_extremes_at_ends),
        "the largest or the smallest element of a row or column last or first in it",
        "let loops and vector loads reach the first and the last element of each dimension",
    ),
    "zeros": (
        partial(_changed, "zeros", partly_zero),
        "zeros in half of each input, and in all of its first sample",
        "divide by nothing that is zero where an input is, such as the input itself or its norm without eps",
    ),
    MODE: (
        _evaluation,
        "the model in evaluation mode (.eval()), in which the reference computes something else",
        "read self.training in every call: then a batch norm uses its running statistics, and a dropout does nothing",
    ),
}
