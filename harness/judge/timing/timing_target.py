"""Describes what is timed: a candidate on one case, in either direction, on fresh inputs."""

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

#: Least share of elements near eager's, and the least where rounding may decide branches.
AGREEING_SHARE, FLIPPING_SHARE = 0.99, 0.5
#: The median deviation from eager may reach this multiple of the tensor's budget, and the second
#: number in any case.
MEDIAN_FACTOR, LEAST_MEDIAN = 16, 1e-5


@dataclass(frozen=True)
class TimingTarget:
    """A candidate on one case, and the baselines it is timed against.

    Attributes:
        problem: The problem.
        module: The problem's body, run under the case.
        constants: The case's constants, encoded.
        context: The case's context, as in the trials.
        first: The first draw, whose state both sides get. Its inputs are gone by now.
        plain: The first draw's inputs, with None in the place of tensors.
        construct: The command that made the candidate's instance.
        device: The GPU.
        trial: Number of the first audited call in reports, after the numbers of the trials.
        baselines: Names of the baselines, eager first.
        conditions: Watches the device during timing.
        budgets: The largest relative budget of each output and gradient in the trials, by its name
            in reports. None for a tensor that is little but rounding: there eager and an honest
            candidate have nothing in common.
        to_beat: A speedup over eager, in the last direction. A series ends early if the candidate is
            far slower than that; 0 for none.
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
    to_beat: float = 0.0

    def seed(self, *parts: object) -> int:
        """Derive a seed for a purpose."""
        return derive_seed(self.context.secret, "timing", *parts)

    def likeness(self, name: str) -> Likeness:
        """Return how near a result of calls in a row must be to eager's."""
        budget = self.budgets.get(name)
        share = FLIPPING_SHARE if self.context.kinks is not None else AGREEING_SHARE
        return Likeness(share, None if budget is None else max(LEAST_MEDIAN, MEDIAN_FACTOR * budget))

    def fresh_inputs(self, seed: int) -> list[Any]:
        """Make the inputs of one call: fresh tensors, and the plain values of the first draw."""
        drawn = draw_inputs(self.problem, self.module, seed, self.device)
        return [
            value if isinstance(value, torch.Tensor) else first for value, first in zip(drawn, self.plain, strict=True)
        ]


@dataclass(frozen=True)
class Direction:
    """Forward, or forward with backward: the commands for each side and the results."""

    name: str
    backward: tuple[Backward | None, Backward | None]
    leaves: tuple[tuple[str, ...], tuple[str, ...]]
    results: dict[str, Region]


def directions_of(context: CaseContext, own: dict[str, str]) -> list[Direction]:
    """Return the directions: forward, and forward with backward if the reference has one.

    Args:
        context: The case's context.
        own: The reference's parameter names mapped to themselves, as its own worker uses them.
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
    """Draw a call's cotangents: standard normal values; none for a forward."""
    if direction.backward[0] is None:
        return []
    generator = torch.Generator(target.device).manual_seed(seed)
    return [
        torch.randn(region.shape, generator=generator, device=target.device).to(dtype_named(region.dtype))
        for region in target.context.exchange.cotangents
    ]
