"""Finds the situations that a problem's own model does not support, so that no trial asks them of a candidate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from harness.errors import ProblemError
from harness.judge.inputs.draws import Draw
from harness.judge.inputs.situations import GAPPED, LOSS_SCALE, REORDERED, SCALED, TRANSPOSED
from harness.judge.reference.graph import Graph
from harness.judge.reference.reference import Reference
from harness.wire.commands import EVALUATION, INFERENCE
from harness.wire.variations import reversed_input, with_gaps

#: The most by which a factor of the cotangent may change a gradient, relative to its L2 norm, and as a
#: multiple of what chance changes. A power of two changes nothing, unless values leave their range.
SAME, BEYOND_CHANCE = 2.0**-20, 16.0


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
    if not reference.is_same_in_eval(draw, seed, graph):
        found.add(EVALUATION)
    if not _runs(lambda: _infer(reference, draw, seed)):
        found.add(INFERENCE)
    # On a GPU an index beyond its bounds would end the judge.
    if graph.outputs[0].device.type == "cpu" and not _runs(lambda: _reorder(reference, draw, seed)):
        found.add(REORDERED)
    return frozenset(found | _of_backward(graph, leaves)) if leaves else frozenset(found)


def _infer(reference: Reference, draw: Draw, seed: int) -> None:
    reference.run(draw, seed, None, None, differentiate=False, watch=torch.inference_mode())


def _reorder(reference: Reference, draw: Draw, seed: int) -> None:
    changed = replace(draw, inputs=[reversed_input(value) for value in draw.inputs])
    reference.run(changed, seed, None, None, differentiate=False)


def _runs(run: Callable[[], None]) -> bool:
    try:
        run()
    except (ProblemError, torch.OutOfMemoryError):
        return False
    return True


def _of_backward(graph: Graph, leaves: Sequence[str]) -> set[str]:
    """Return the forms of a cotangent under which the reference's backward fails or gives something else."""
    ones = [torch.ones((), dtype=one.dtype, device=one.device).expand_as(one) for one in graph.outputs]
    found = set() if _bears_scale(graph, leaves, ones) else {SCALED}
    for name, formed in ((GAPPED, with_gaps), (TRANSPOSED, _transposed)):
        try:
            graph.gradients([formed(one) for one in ones])
        except (RuntimeError, torch.OutOfMemoryError):  # of an autograd.Function of the problem's own
            found.add(name)
    return found


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy whose dimensions lie in memory in reverse order."""
    order = tuple(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def _bears_scale(graph: Graph, leaves: Sequence[str], ones: Sequence[torch.Tensor]) -> bool:
    """Return whether a cotangent times ``LOSS_SCALE`` or its inverse gives as many times the gradients.

    Half precision inside a model leaves its range then, and some operators choose their method by
    the size of what they get.
    """
    if not all(one.is_floating_point() for one in ones):  # whose own zeros and ones no factor may change
        return False
    usual, again = graph.gradients(ones), graph.gradients(ones)
    for factor in (LOSS_SCALE, 1 / LOSS_SCALE):
        scaled = graph.gradients([one * factor for one in ones])
        for name in leaves:
            expected, repeated, received = usual[name], again[name], scaled[name]
            if expected is None or repeated is None or received is None or expected.dtype is torch.float16:
                return False
            allowed = SAME * _norm(expected) + BEYOND_CHANCE * _norm(repeated - expected)
            if not _norm(received / factor - expected) <= allowed:
                return False
    return True


def _norm(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor, dtype=torch.float64))
