"""Checks that the reference can be called as trials call a candidate: without autograd, and a second time."""

from __future__ import annotations

from typing import Any

import torch

from harness.errors import ProblemError
from harness.judge.inputs.draws import Draw
from harness.judge.inputs.randomness import distance, magnitude
from harness.judge.reference.graph import Graph
from harness.judge.reference.reference import Reference
from harness.project.problems import Problem
from harness.system.text import one_line
from harness.wire.state import tensors_aside

#: Two calls of one instance differ by no more than this share of the largest element, unless the
#: second one depends on the first.
SAME = 1e-3
#: The same for a forward with and without autograd, which may choose other algorithms in half precision.
BY_ROUNDING = 0.05


def check_second_call(problem: Problem, reference: Reference, draw: Draw, seed: int, graph: Graph) -> None:
    """Check that a second call has the same results and a backward, if forward keeps tensors.

    Args:
        problem: The problem, for messages.
        reference: Evaluates the reference.
        draw: A draw.
        seed: Seed of the random numbers that the forward draws.
        graph: An eager evaluation under both, whose graph this releases.

    Raises:
        ProblemError: A second call has other results, or no backward of its own.
    """
    before, after = _kept(draw.model), _kept(graph.model)
    changed = [name for name, one in after.items() if name not in before or not _is_same(one, before[name])]
    if not changed:
        return
    kept = f"{problem.path}: Model keeps self.{changed[0]} from one forward to the next, and a second call"
    remedy = (
        "no candidate can be judged by that. Compute it anew in each forward, or take it as an input and detach() "
        "what is kept. --forward-only needs no backward"
    )
    _differentiate(graph)
    with torch.no_grad():  # as before each call of a candidate
        for buffer, first in zip(graph.model.buffers(), draw.model.buffers(), strict=True):
            if buffer.shape == first.shape:
                buffer.copy_(first)
    again = reference.run(draw, seed, None, None, model=graph.model)
    for mine, theirs in zip(graph.outputs, again.outputs, strict=True):
        if distance([mine], [theirs]) > SAME * magnitude(mine):
            raise ProblemError(f"{kept} has other results: {remedy}")
    try:
        _differentiate(again)
    except RuntimeError as error:
        raise ProblemError(f"{kept} has no backward of its own ({one_line(str(error))}): {remedy}") from error


def check_without_autograd(problem: Problem, reference: Reference, draw: Draw, seed: int, graph: Graph) -> None:
    """Check that a forward returns the same under ``torch.no_grad()``, as timed calls and some trials run it.

    Args:
        problem: The problem, for messages.
        reference: Evaluates the reference.
        draw: A draw with which it runs otherwise.
        seed: Seed of the random numbers that the forward draws.
        graph: An eager evaluation under both, with autograd.

    Raises:
        ProblemError: It does not run so, or returns something else than rounding explains.
    """
    try:
        without = reference.run(draw, seed, None, None, differentiate=False)
    except ProblemError as error:
        raise ProblemError(
            f"{error}. This forward ran under torch.no_grad(), as in a server: compute derivatives inside of it under "
            "torch.enable_grad(), of a tensor that needs a gradient (x if x.requires_grad else "
            "x.detach().requires_grad_())"
        ) from error
    # A reference that returns something else each time is another check's matter.
    if not _are_alike(graph, without) and _are_alike(graph, reference.eager(draw, seed)):
        raise ProblemError(
            f"{problem.path}: under torch.no_grad() forward returns something else, so no candidate can be right with "
            "and without autograd. Let it not ask torch.is_grad_enabled(). nn.TransformerEncoder does in evaluation "
            "mode: give it enable_nested_tensor=False"
        )


def _are_alike(one: Graph, other: Graph) -> bool:
    shapes, others = ([output.shape for output in run.outputs] for run in (one, other))
    return shapes == others and all(map(_is_alike, one.outputs, other.outputs))


def _is_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.is_floating_point():  # rounding may decide some of its elements
        return True
    return not distance([one], [other]) > BY_ROUNDING * magnitude(one)


def _differentiate(graph: Graph) -> None:
    """Run backward as a training loop does, which releases the graph."""
    outputs = [output for output in graph.outputs if output.requires_grad]
    if outputs and graph.leaves:
        ones = [torch.ones_like(output) for output in outputs]
        torch.autograd.grad(outputs, list(graph.leaves.values()), ones, allow_unused=True)


def _kept(model: torch.nn.Module) -> dict[str, Any]:
    """Return what a model can keep from one forward to the next, but its buffers, by name."""
    found: dict[str, Any] = {**dict(model.named_parameters()), **tensors_aside(model)}
    for path, module in model.named_modules():
        plain = {name: value for name, value in vars(module).items() if isinstance(value, bool | int | float | str)}
        found |= {f"{path}.{name}".strip("."): value for name, value in plain.items()}
    return found


def _is_same(one: Any, before: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(before, torch.Tensor):
        return bool(one == before)
    tensor = one
    same_form = (tensor.shape, tensor.dtype, tensor.requires_grad) == (before.shape, before.dtype, before.requires_grad)
    return same_form and torch.equal(tensor, before)
