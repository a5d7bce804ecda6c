"""Finds the situations that a problem's own model does not support, so that no trial asks them of a candidate."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from harness.errors import ProblemError
from harness.judge.inputs.copying import copied
from harness.judge.inputs.draws import Draw, constant
from harness.judge.inputs.situations import GAPS, LOSS_SCALE, REORDERED, SCALED, TRANSPOSED, TWICE, transposed_order
from harness.judge.reference.device_assertions import TriedOnCpu
from harness.judge.reference.graph import Graph
from harness.judge.reference.reference import Reference
from harness.wire.commands import EVALUATION, INFERENCE, RETURNED
from harness.wire.state import switch_and_return
from harness.wire.variations import reversed_input, with_gaps

#: The most by which a factor of the cotangent may change a gradient's L2 norm, relative to it and as a
#: multiple of what chance changes. A power of two changes nothing, unless values leave their range.
SAME, BEYOND_CHANCE = 2.0**-20, 16.0
#: The most by which half of a sum of two equal gradients may differ from one, relative to it.
ALIKE = 2.0**-10
#: The least norm of a gradient that is not zero, so that the factor leaves normal numbers normal.
SMALLEST = 2.0**-80
#: Elements that are added up at a time, in float64.
_PART = 1 << 24


def unsupported(reference: Reference, draw: Draw, seed: int, graph: Graph, leaves: Sequence[str]) -> frozenset[str]:
    """Return the situations in which the reference fails or returns something else.

    Args:
        reference: The reference.
        draw: A draw.
        seed: Seed of the random numbers that the forward draws.
        graph: An eager evaluation under both.
        leaves: The leaves that the reference differentiates.
    """
    found = set()
    for way, change in ((EVALUATION, torch.nn.Module.eval), (RETURNED, switch_and_return)):
        if not _is_same_behind(reference, draw, seed, graph, change):
            found.add(way)
    if not _runs(lambda: _infer(reference, draw, seed)):
        found.add(INFERENCE)
    if not _runs(lambda: _reorder(reference, draw, seed)):
        found.add(REORDERED)
    return frozenset(found | _of_backward(graph, leaves)) if leaves else frozenset(found)


def _is_same_behind(
    reference: Reference, draw: Draw, seed: int, graph: Graph, change: Callable[[torch.nn.Module], object]
) -> bool:
    """Return whether the model gives the same bits behind a change of its mode.

    Its parameters are written behind the change, as those of a candidate are.
    """
    try:
        model = copied(draw.model, None)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        try:
            change(model)
        except Exception:  # of a method of the problem's own
            return False
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), draw.model.parameters(), strict=True):
                parameter.copy_(value)
        other = reference.run(replace(draw, model=model), seed, None, None, differentiate=False)
    except (ProblemError, torch.OutOfMemoryError):
        return False
    mine, theirs = ([*one.outputs, *one.buffers.values()] for one in (graph, other))
    return len(mine) == len(theirs) and all(map(torch.equal, mine, theirs))


def _infer(reference: Reference, draw: Draw, seed: int) -> None:
    reference.run(draw, seed, None, None, differentiate=False, watch=torch.inference_mode())


def _reorder(reference: Reference, draw: Draw, seed: int) -> None:
    changed = replace(draw, inputs=[reversed_input(value) for value in draw.inputs])
    reference.run(changed, seed, None, None, differentiate=False, watch=TriedOnCpu())


def _runs(run: Callable[[], None]) -> bool:
    try:
        run()
    except (ProblemError, torch.OutOfMemoryError):
        return False
    return True


def _of_backward(graph: Graph, leaves: Sequence[str]) -> set[str]:
    """Return the forms of a cotangent under which the reference's backward fails or gives something else."""
    tries: dict[str, Callable[[], bool]] = {
        SCALED: lambda: _bears_scale(graph, leaves),
        **{way: functools.partial(_bears_gaps, graph, along) for way, along in GAPS.items()},
        TRANSPOSED: lambda: bool(graph.gradients([_transposed(one) for one in constant(graph.outputs, 1.0)])),
        TWICE: lambda: _adds_up(graph, leaves),
    }
    found = set()
    for name, tried in tries.items():
        try:
            if not tried():
                found.add(name)
        except (ProblemError, RuntimeError):
            found.add(name)
    return found


def _bears_gaps(graph: Graph, along: Sequence[int]) -> bool:
    """Return whether the reference's backward takes a cotangent with gaps in memory."""
    return bool(graph.gradients([with_gaps(one, along) for one in constant(graph.outputs, 1.0)]))


def _adds_up(graph: Graph, leaves: Sequence[str]) -> bool:
    """Return whether two backwards into ``.grad`` give twice the gradients.

    Torch lets the ``.grad`` of two leaves share memory where both are views of one tensor, as behind
    ``x.view(-1) + y.view(-1)``.
    """
    outputs = [output for output in graph.outputs if output.requires_grad]
    usual = _norms(graph, leaves, 1.0)
    tensors = [graph.leaves[name] for name in leaves]
    try:
        for _ in range(2):
            torch.autograd.backward(outputs, [torch.ones_like(one) for one in outputs], retain_graph=True)
        sums = [_norm(one.grad) if one.grad is not None else 0.0 for one in tensors]
    finally:
        for one in graph.leaves.values():
            one.grad = None
    return all(math.isnan(one) or abs(added / 2 - one) <= ALIKE * one for one, added in zip(usual, sums, strict=True))


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy that lies transposed in memory."""
    order = transposed_order(tensor.shape)
    return tensor.permute(order).contiguous().permute([order.index(dimension) for dimension in range(tensor.dim())])


def _bears_scale(graph: Graph, leaves: Sequence[str]) -> bool:
    """Return whether a cotangent times ``LOSS_SCALE`` or its inverse gives as many times the gradients.

    Half precision inside a model leaves its range then, and some operators choose their method by
    the size of what they get. Norms tell it, and only one cotangent's gradients are in memory.
    """
    if not all(one.is_floating_point() for one in graph.outputs):  # no factor may change zeros and ones of integers
        return False
    usual, again = _norms(graph, leaves, 1.0), _norms(graph, leaves, 1.0)
    for factor in (LOSS_SCALE, 1 / LOSS_SCALE):
        for one, repeated, scaled in zip(usual, again, _norms(graph, leaves, factor), strict=True):
            is_same = abs(scaled / factor - one) <= SAME * one + BEYOND_CHANCE * abs(repeated - one)
            if not is_same or 0 < one < SMALLEST:
                return False
    return True


def _norms(graph: Graph, leaves: Sequence[str], factor: float) -> list[float]:
    """Return the L2 norm of each leaf's gradient under a constant cotangent; NaN for a gradient in float16."""
    gradients = graph.gradients(constant(graph.outputs, factor))
    found = []
    for name in leaves:
        gradient = gradients.pop(name)
        assert gradient is not None
        found.append(_norm(gradient))
    return found


def _norm(gradient: torch.Tensor) -> float:
    """Return the L2 norm of a gradient; NaN for one in float16."""
    squares = sum(float(part.double().square().sum()) for part in torch.split(gradient.reshape(-1), _PART))
    return math.nan if gradient.dtype is torch.float16 else math.sqrt(squares)
