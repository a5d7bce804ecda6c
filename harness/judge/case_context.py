"""Holds what the trials of a case share, and makes the commands that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.judge.exchange.exchange import Exchange
from harness.judge.inputs.draws import Draw, derive_seed
from harness.judge.inputs.situations import RECORDED, Usage
from harness.judge.process.faults import Faults
from harness.judge.reference.kinks import Kinks
from harness.judge.reference.reference import Reference
from harness.judge.reference.reference_cache import CaseCache
from harness.records.record import PrecisionClass
from harness.wire.commands import Backward, Forward
from harness.wire.replies import OutputPart
from harness.wire.tensors import Region, Value, input_key

#: A trial that calls the candidate once, and needs all gradients.
ORDINARY = Usage()


@dataclass(frozen=True)
class CaseContext:
    """The context that all trials of a case share.

    Attributes:
        exchange: The arena.
        reference: Evaluates the reference.
        names: The reference's parameter and buffer names to the candidate's.
        leaves: The leaves that the reference differentiates; empty if there are none.
        differentiable: Paths of the outputs that the reference differentiates.
        structure: The containers around the reference's outputs.
        precision: The precision class whose budgets apply.
        secret: The secret from which seeds derive.
        fresh_inputs: Draws ordinary inputs from a seed.
        kinks: Settles draws; None if the reference has no kinks.
        buffers: The reference's buffers that are compared after a forward.
        known: The cache of the reference's facts.
        is_relaxed: Whether budgets are those of ``--precision relaxed``.
        faults: Collects the faults that the emulator reports.
        gauges_at_need: Whether eager's errors are measured only if an error exceeds the least
            budget (see ``Comparison``).
        unsupported: Situations that the reference does not support.
    """

    exchange: Exchange
    reference: Reference
    names: Mapping[str, str]
    leaves: tuple[str, ...]
    differentiable: tuple[str, ...]
    structure: tuple[OutputPart, ...]
    precision: PrecisionClass
    secret: str
    fresh_inputs: Callable[[int], list[Any]]
    kinks: Kinks | None = None
    buffers: tuple[str, ...] = ()
    known: CaseCache = field(default_factory=CaseCache)
    is_relaxed: bool = False
    faults: Faults = field(default_factory=Faults)
    gauges_at_need: bool = False
    unsupported: frozenset[str] = frozenset()

    @property
    def must_detach(self) -> bool:
        """True if gradients are judged, and no output of the reference has one."""
        return self.reference.differentiates and not self.differentiable


def forward_command(
    context: CaseContext, draw: Draw, seed: int, thread_order: str, *, differentiate: bool, usage: Usage = ORDINARY
) -> Forward:
    """Write a draw's inputs and state into the arena; return the command to run forward on them.

    If the usage says ``RECORDED``, no input needs a gradient, and no parameter, unless gradients are
    judged and the reference has none: then all need one, so that a lost ``detach()`` shows.
    """
    exchange = context.exchange
    inputs = exchange.write_inputs(draw.inputs)
    ours = {**dict(draw.model.named_parameters()), **dict(draw.model.named_buffers())}
    state = []
    for name, theirs in context.names.items():
        exchange.write(exchange.state[name], ours[name])
        state.append((theirs, exchange.state[name]))
    buffers = tuple((context.names[name], exchange.buffers[name]) for name in context.buffers)
    others: tuple[Value, ...] = ()
    if usage.aside:
        others = exchange.write_others(context.fresh_inputs(derive_seed(str(seed), "aside")))
    exchange.poison([*exchange.outputs, *(region for _, region in buffers)])
    exchange.surround(usage.fill)
    exchange.settle()
    positions = {name: position for position, name in exchange.input_names.items()}
    names = usage.frozen
    if usage.again == RECORDED:
        names = () if context.must_detach else (*positions, *context.names)
    frozen = tuple(input_key(positions[name]) if name in positions else context.names[name] for name in names)
    return Forward(
        inputs,
        state=tuple(state),
        outputs=exchange.outputs,
        buffers=buffers,
        differentiate=differentiate,
        thread_order=thread_order,
        order_seed=seed,
        fill=usage.fill,
        frozen=frozen,
        aside=usage.aside,
        calls=usage.calls,
        aside_calls=usage.aside_calls,
        ways=usage.ways,
        reorders=usage.reorders,
        others=others,
    )


def backward_command(
    context: CaseContext,
    cotangents: Sequence[Region] | None = None,
    *,
    expanded: bool = False,
    twice: bool = False,
    gaps: tuple[int, ...] = (),
    alone: int | None = None,
) -> Backward:
    """Return the command to differentiate with the cotangents in the arena (see ``Backward``).

    Args:
        context: The case's context.
        cotangents: Where they lie; None for the exchange's own regions.
        expanded: As in ``Backward``.
        twice: As in ``Backward``.
        gaps: As in ``Backward``.
        alone: As in ``Backward``.
    """
    exchange = context.exchange
    positions = {name: position for position, name in exchange.input_names.items()}
    regions = {name: exchange.gradients[name] for name in context.leaves}
    return Backward(
        exchange.cotangents if cotangents is None else tuple(cotangents),
        tuple((positions[name], region) for name, region in regions.items() if name in positions),
        tuple((context.names[name], region) for name, region in regions.items() if name not in positions),
        expanded,
        twice,
        gaps,
        alone,
    )
