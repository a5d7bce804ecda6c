"""What is timed: a candidate on one case, in either direction, on inputs that nobody has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.judge.case_context import CaseContext, backward_command
from harness.judge.inputs.draws import Draw, derive_seed, draw_inputs
from harness.judge.timing.device_conditions import Conditions
from harness.judge.timing.windows import Likeness
from harness.project.problems import Problem, ProblemModule
from harness.wire.arena import dtype_named
from harness.wire.commands import Backward, Construct
from harness.wire.structure import paths_of
from harness.wire.tensors import Region, input_key

#: So many elements must be near eager's; where rounding may decide branches, fewer.
AGREEING_SHARE, FLIPPING_SHARE = 0.99, 0.5
#: The median deviation from eager may be so many times the tensor's budget, and this in any case.
MEDIAN_FACTOR, LEAST_MEDIAN = 16, 1e-5


@dataclass(frozen=True)
class TimingTarget:
    """What is timed.

    Attributes:
        problem: The problem.
        module: Its body, run under the case.
        constants: The case's constants, encoded.
        context: The case's context, as in the trials.
        first: The first draw, whose state both sides get; its inputs are gone by now.
        construct: What made the candidate's instance.
        plain: The first draw's inputs, None in the place of tensors.
        device: The GPU.
        trial: Number of the first audited call in reports, after those of the trials.
        baselines: Names of the baselines, eager first.
        conditions: What the device is seen to be like meanwhile.
        budgets: The largest relative budget that each output and gradient had in the trials, by its name in reports;
            None for what is little but rounding: eager's and an honest candidate's have nothing in common.
    """

    problem: Problem
    module: ProblemModule
    constants: str
    context: CaseContext
    first: Draw
    plain: Sequence[Any]
    construct: Construct
    device: torch.device
    trial: int
    baselines: tuple[str, ...]
    conditions: Conditions
    budgets: dict[str, float | None]

    def seed(self, *parts: object) -> int:
        """A seed for a purpose."""
        return derive_seed(self.context.secret, "timing", *parts)

    def likeness(self, name: str) -> Likeness:
        """How near a result in a row must be to eager's."""
        budget = self.budgets.get(name)
        share = FLIPPING_SHARE if self.context.kinks is not None else AGREEING_SHARE
        return Likeness(share, None if budget is None else max(LEAST_MEDIAN, MEDIAN_FACTOR * budget))

    def fresh_inputs(self, seed: int) -> list[Any]:
        """The inputs of one call: fresh tensors, and the plain values of the first draw."""
        drawn = draw_inputs(self.problem, self.module, seed, self.device)
        return [
            value if isinstance(value, torch.Tensor) else first for value, first in zip(drawn, self.plain, strict=True)
        ]


@dataclass(frozen=True)
class Direction:
    """Forward, or forward with backward: what each side is asked for."""

    name: str
    backward: tuple[Backward | None, Backward | None]
    leaves: tuple[tuple[str, ...], tuple[str, ...]]
    results: dict[str, Region]


def directions_of(context: CaseContext, own: dict[str, str]) -> list[Direction]:
    """Forward, and with backward where the reference has one.

    Args:
        context: The case's context.
        own: The reference's names of its parameters, by themselves: what its own worker calls them.
    """
    exchange = context.exchange
    outputs = dict(zip(paths_of(context.structure), exchange.outputs, strict=True))
    found = [Direction("forward", (None, None), ((), ()), outputs)]
    if context.leaves:
        settings = context, replace(context, names=own)
        positions = {name: position for position, name in exchange.input_names.items()}
        leaves = tuple(
            tuple(input_key(positions[name]) if name in positions else one.names[name] for name in context.leaves)
            for one in settings
        )
        found.append(
            Direction(
                "forward_backward",
                (backward_command(settings[0]), backward_command(settings[1])),
                (leaves[0], leaves[1]),
                {name: exchange.gradients[name] for name in context.leaves},
            )
        )
    return found


def cotangents_of(target: TimingTarget, seed: int, direction: Direction) -> list[torch.Tensor]:
    """What a call differentiates with: standard normal values; none in a forward."""
    if direction.backward[0] is None:
        return []
    generator = torch.Generator(target.device).manual_seed(seed)
    return [
        torch.randn(region.shape, generator=generator, device=target.device).to(dtype_named(region.dtype))
        for region in target.context.exchange.cotangents
    ]
