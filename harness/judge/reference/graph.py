"""One evaluation of the reference, with what is needed for its gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from harness.errors import ProblemError
from harness.judge.reference.lifting import Lifting
from harness.judge.reference.torch_settings import ExactConvolutions
from harness.project.problems import Problem, failure
from harness.wire.replies import OutputPart

#: What torch says if a saved tensor has another version.
_CHANGED_IN_PLACE = "modified by an inplace operation"


@dataclass
class Graph:
    """One evaluation of the reference, with its autograd graph.

    Attributes:
        problem: The problem that defines the reference.
        outputs: The output tensors, in order.
        leaves: Differentiable inputs and parameters by name.
        structure: The containers and plain values around the outputs.
        buffers: The model's persistent buffers after the forward.
        drawn_from: The generators from which the forward drew: ``torch``, ``random``.
        model: The instance that ran.
        written_inputs: Positions of the inputs to which the forward wrote.
        convolutions: How it convolved; None for torch's own way.
        is_lifted: Whether casts to a lower precision are left out, also in a backward of the problem's own.
    """

    problem: Problem
    outputs: list[torch.Tensor]
    leaves: dict[str, torch.Tensor]
    structure: tuple[OutputPart, ...]
    buffers: dict[str, torch.Tensor]
    drawn_from: frozenset[str]
    model: torch.nn.Module
    written_inputs: tuple[int, ...]
    convolutions: ExactConvolutions | None = None
    is_lifted: bool = False

    def gradients(self, cotangents: Sequence[torch.Tensor]) -> dict[str, torch.Tensor | None]:
        """Return gradients by leaf under these cotangents; None for a leaf without influence.

        Raises:
            ProblemError: The backward fails, or gives a gradient that is not dense.
        """
        pairs = [
            (output, cotangent.to(output.dtype))
            for output, cotangent in zip(self.outputs, cotangents, strict=True)
            if output.requires_grad
        ]

        def differentiate() -> Sequence[torch.Tensor | None]:
            with Lifting() if self.is_lifted else contextlib.nullcontext():
                return torch.autograd.grad(
                    [output for output, _ in pairs],
                    list(self.leaves.values()),
                    [cotangent for _, cotangent in pairs],
                    retain_graph=True,
                    allow_unused=True,
                )

        try:
            results = differentiate() if self.convolutions is None else self.convolutions.call(differentiate)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # An autograd.Function of the problem's own may raise anything.
            failed = failure(self.problem, "the reference's backward", error)
            if _CHANGED_IN_PLACE not in str(error):
                raise failed from error
            raise ProblemError(
                f"{failed} Forward changes in place what backward needs (such as `y += x` behind relu): write "
                "`y = y + x`, or judge outputs alone with --forward-only"
            ) from error
        gradients: dict[str, torch.Tensor | None] = dict(zip(self.leaves, results, strict=True))
        for name, gradient in gradients.items():
            if gradient is not None and gradient.layout is not torch.strided:
                raise ProblemError(
                    f"{self.problem.path}: the gradient of {name} has layout {gradient.layout}, but the harness "
                    "judges dense gradients alone: use sparse=False in torch.nn.Embedding"
                )
        return gradients


def in_one_draw_alone(name: str) -> str:
    """Return the message about a leaf that the reference uses in some draws and not in others."""
    return (
        f"the reference gives {name} a gradient in one draw and not in another, so no candidate can be judged by it. "
        "Let each forward use it: call an expert without tokens on an empty tensor, or add 0 times the parameter's sum"
    )


def differentiable_leaves(gradients: Mapping[str, torch.Tensor | None]) -> list[str]:
    """Return the leaves that the reference differentiates."""
    return [name for name, gradient in gradients.items() if gradient is not None]
