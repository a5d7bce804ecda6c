"""Runs one trial: draws, calls the candidate, evaluates the reference, compares.

The candidate runs before the reference. When an expected value comes into existence, the
candidate's results are already in the judge's private memory. There is one exception: if the
reference has kinks, the judge runs its forward beforehand to choose the inputs. That run stays in
the judge's process, and the judge keeps none of its values.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from harness.errors import ProblemError
from harness.judge.case_context import ORDINARY, CaseContext, backward_command, forward_command
from harness.judge.compare.comparison import Comparison
from harness.judge.compare.explanation import worst_reports
from harness.judge.compare.received import ReceivedGradients
from harness.judge.compare.trial_result import TrialResult
from harness.judge.exchange.digests import Digests
from harness.judge.exchange.exchange import same_bytes
from harness.judge.inputs.buffers import PREFIX
from harness.judge.inputs.draws import Draw, cotangents, derive_seed
from harness.judge.inputs.situations import (
    AFTER_BACKWARD,
    CONSTANT,
    FIRST,
    GAPS,
    OF_COPY,
    RECORDED,
    TRANSPOSED,
    TWICE,
    Usage,
    transposed_order,
)
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.process.faults import MAX_MESSAGE_CHARACTERS, stop_for
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.reference.graph import differentiable_leaves, in_one_draw_alone
from harness.judge.reference.kinks import Settled
from harness.records.record import Status
from harness.records.rules import PROTOCOL
from harness.system.text import shortened
from harness.wire.arena import region_bytes
from harness.wire.commands import ANOTHER_INSTANCE, DEEP_COPY, SAME_INSTANCE, Repeat
from harness.wire.replies import Gradients, Outputs
from harness.wire.structure import ROOT, difference, paths_of
from harness.wire.tensors import Region, input_key

#: The most characters kept of a message about a gradient's form.
MAX_FAULT_CHARACTERS = 1000
THREAD_ORDERS = ("forward", "reverse", "random")
#: Names of digests: of everything that a trial gives, and the prefix of a gradient's before the
#: leaf's name.
GIVEN, GRADIENT = "given", "gradient of "


def received_outputs(
    context: CaseContext, worker: WorkerHandle, clock: Clock, draw: Draw, usage: Usage = ORDINARY
) -> list[torch.Tensor]:
    """Run a forward without gradients; return private copies of its outputs.

    Raises:
        CandidateStopped: The candidate failed, or its outputs have another form than the
            reference's.
    """
    context = replace(context, leaves=())
    seed = forward_seed(context, 0)
    return _forward(context, worker, clock, draw, seed=seed, thread_order=THREAD_ORDERS[0], usage=usage)[0]


def settle(context: CaseContext, draw: Draw, trial: int) -> Draw | Settled:
    """Return a trial's draw, moved away from kinks if the reference has any.

    Raises:
        ProblemError: The reference does not run.
    """
    return draw if context.kinks is None else context.kinks.settle(draw, forward_seed(context, trial))


def run_trial(
    context: CaseContext,
    worker: WorkerHandle,
    clock: Clock,
    drawn: Draw | Settled,
    trial: int,
    *,
    thread_order: str,
    normal_only: bool = False,
    usage: Usage = ORDINARY,
) -> TrialResult:
    """Run one trial on a draw from ``settle``.

    Args:
        context: The case's context.
        worker: The candidate's worker.
        clock: The seconds that the candidate may still use.
        drawn: The draw to give the candidate.
        trial: The trial's number; seeds derive from it.
        thread_order: The order in which the emulator runs threads.
        normal_only: Judge gradients under the normal cotangent alone, and take no digests.
        usage: How to call the candidate.

    Raises:
        CandidateStopped: The candidate failed before there were values to compare.
        ProblemError: The reference does not run.
    """
    seed = forward_seed(context, trial)
    settled = drawn if isinstance(drawn, Settled) else None
    draw = drawn.draw if isinstance(drawn, Settled) else drawn
    leaves = () if usage.without_gradients else tuple(name for name in context.leaves if name not in usage.frozen)
    context = replace(context, leaves=leaves)
    if usage.aside == SAME_INSTANCE and context.reference.changes:  # whose buffers a further call would change
        usage = replace(usage, aside=ANOTHER_INSTANCE)
    if (usage.aside or DEEP_COPY in usage.ways) and not _has_room_aside(context, draw):
        usage = replace(usage, aside="", ways=tuple(way for way in usage.ways if way not in OF_COPY))
    try:
        received, buffers = _forward(context, worker, clock, draw, seed=seed, thread_order=thread_order, usage=usage)
    except CandidateStopped as stop:
        # The outputs have another form, unless the reference's own form has changed too.
        if stop.status is Status.WRONG_OUTPUT:
            context.reference.check_forms(draw, seed, [region.shape for region in context.exchange.outputs])
        raise
    digests = Digests()
    if not normal_only:
        for tensor in _given(draw):
            digests.add(GIVEN, tensor)
        digests.add_all(_named(context, received, buffers))

    def compare() -> Comparison:
        return Comparison(
            context.reference,
            draw,
            seed,
            context.leaves,
            context.precision,
            trial=trial,
            settled=settled,
            is_relaxed=context.is_relaxed,
            gauges=context.known.gauges(("trial", trial), draw),
            gauges_at_need=context.gauges_at_need,
        )

    comparison = compare()
    outputs: list[torch.Tensor] | None = received
    further: list[tuple[str, Sequence[torch.Tensor], Mapping[str, torch.Tensor]]] = []
    if usage.is_recorded and not context.leaves:
        recorded = replace(ORDINARY, again=RECORDED, fill=usage.fill)
        tensors, kept = _forward(context, worker, clock, draw, seed=seed, thread_order=thread_order, usage=recorded)
        if not all(map(same_bytes, (*tensors, *kept.values()), (*received, *buffers.values()))):
            further.append((RECORDED, tensors, kept))
    answers: list[ReceivedGradients] = []
    if context.leaves:
        # The cotangent "output" is what the candidate returned: expected values stay with the
        # judge.
        alone = paths_of(context.structure).index(usage.alone) if usage.alone else None
        seeded = _cotangents(context, received, trial, alone)
        # The normal cotangent is the first.
        for name, cotangent in itertools.islice(seeded, 1 if normal_only else None):
            constant = usage.scale if name == CONSTANT else None
            ways = usage.ways if name == FIRST else ()
            if name != FIRST:  # whose backward has used up the graph
                repeated = _repeated(context, worker, clock, draw, received)
                if repeated is not None:
                    further.append((AFTER_BACKWARD, repeated, {}))
            gradients = _backward(context, worker, clock, draw, cotangent, constant=constant, ways=ways, alone=alone)
            digests.add_all({} if normal_only else gradients, GRADIENT)
            answers.append(ReceivedGradients(name, cotangent, gradients, alone))
            # Answers compared together need one evaluation of the reference, so the judge collects
            # them while memory allows.
            if not context.reference.has_room_beside(answers[-1].bytes):
                comparison.add(outputs, answers, buffers)
                outputs, answers = None, []
    if outputs is not None or answers:
        comparison.add(outputs, answers, buffers)
    result = comparison.result(None if normal_only else answers)
    if usage.alone:  # gradients that this output does not reach are no evidence
        result.gradients = [one for one in result.gradients if not (one.ok and one.note)]
    result.usage = usage
    for which, again, kept_again in further:
        if result.failed:
            break
        comparison = compare()
        comparison.add(again, (), kept_again)
        compared = comparison.result()
        if compared.failed:
            result.usage = replace(usage, again=which)
        result.outputs = list(worst_reports([*result.outputs, *compared.outputs]))
    result.digests = digests.finished()
    return result


def results_of(
    context: CaseContext, worker: WorkerHandle, clock: Clock, draw: Draw, *, trial: int, thread_order: str, fill: int
) -> dict[str, torch.Tensor]:
    """Run forward, and backward under the normal cotangent; return private copies by digest name.

    Raises:
        CandidateStopped: The candidate failed.
    """
    seed = forward_seed(context, trial)
    usage = replace(ORDINARY, fill=fill)
    received, buffers = _forward(context, worker, clock, draw, seed=seed, thread_order=thread_order, usage=usage)
    results = _named(context, received, buffers)
    if context.leaves:
        _, cotangent = next(_cotangents(context, received, trial))
        gradients = _backward(context, worker, clock, draw, cotangent)
        results |= {GRADIENT + name: one for name, one in gradients.items() if isinstance(one, torch.Tensor)}
    return results


def _cotangents(
    context: CaseContext, received: Sequence[torch.Tensor], trial: int, alone: int | None = None
) -> Iterator[tuple[str, list[torch.Tensor]]]:
    seed = derive_seed(context.secret, "trial", trial, "cotangent")
    return cotangents(received, seed, alone, has_zeros=trial == 0)


def _named(
    context: CaseContext, received: Sequence[torch.Tensor], buffers: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    named = dict(zip(paths_of(context.structure), received, strict=True))
    return named | {PREFIX + name: buffer for name, buffer in buffers.items()}


def _given(draw: Draw) -> list[torch.Tensor]:
    """Return the tensors that the candidate gets."""
    state = (*draw.model.parameters(), *draw.model.buffers())
    return [value for value in (*draw.inputs, *state) if isinstance(value, torch.Tensor)]


def forward_seed(context: CaseContext, trial: int) -> int:
    """Derive the seed of the random numbers that a trial's forward draws."""
    return derive_seed(context.secret, "trial", trial, "forward")


def _forward(
    context: CaseContext,
    worker: WorkerHandle,
    clock: Clock,
    draw: Draw,
    *,
    seed: int,
    thread_order: str,
    usage: Usage = ORDINARY,
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Have the candidate run forward; return private copies of its outputs and judged buffers."""
    exchange = context.exchange
    records = bool(context.leaves) or usage.again == RECORDED
    command = forward_command(context, draw, seed, thread_order, differentiate=records, usage=usage)
    reply = worker.request(command, clock, "running forward")
    if not isinstance(reply, Outputs):
        raise stop_for(reply, context.faults)
    context.faults.take(reply.reports)
    exchange.check_untouched(draw.inputs, set(reply.written) - context.reference.written)
    _check_form(exchange.outputs, reply, context)
    if usage.again == RECORDED and context.must_detach and any(tensor.differentiable for tensor in reply.tensors):
        raise CandidateStopped(
            Status.WRONG_GRADIENT,
            "the output requires a gradient, but the reference's does not: detach it, or keep requires_grad=False",
        )
    return [exchange.take(region) for region in exchange.outputs], _buffers(context, reply, draw)


def _has_room_aside(context: CaseContext, draw: Draw) -> bool:
    """Return whether memory can hold a second instance and its result, as a call aside may need."""
    given = (*draw.inputs, *draw.model.parameters())
    inputs = sum(value.nbytes for value in given if isinstance(value, torch.Tensor))
    outputs = sum(region_bytes(region.shape, region.dtype) for region in context.exchange.outputs)
    return context.reference.has_room_beside(2 * (inputs + outputs))


def _buffers(context: CaseContext, reply: Outputs, draw: Draw) -> dict[str, torch.Tensor]:
    """Return private copies of the buffers that the reference changes, by its names.

    Raises:
        CandidateStopped: A buffer cannot be compared, or the candidate changed one that the
            reference leaves alone.
    """
    found = {}
    for name in context.buffers:
        if fault := reply.buffer_faults.get(context.names[name]):
            raise CandidateStopped(Status.WRONG_OUTPUT, f"buffer {name}: {shortened(fault, MAX_MESSAGE_CHARACTERS)}")
        buffer = context.exchange.take(context.exchange.buffers[name])
        if name in context.reference.changes:
            found[name] = buffer
        elif not same_bytes(buffer, draw.model.get_buffer(name)):
            message = f"forward changes the buffer {name}, but the reference does not"
            raise CandidateStopped(Status.WRONG_OUTPUT, message)
    return found


def _check_form(expected: Sequence[Region], reply: Outputs, context: CaseContext) -> None:
    """Check the structure, shapes, dtypes and devices of the candidate's outputs."""
    if words := difference(context.structure, reply.structure):
        raise CandidateStopped(Status.WRONG_OUTPUT, words)
    if len(reply.tensors) != len(expected):
        raise CandidateStopped(Status.CHEATED, "the worker described tensors that it had not announced", rule=PROTOCOL)
    for path, tensor, region in zip(paths_of(context.structure), reply.tensors, expected, strict=True):
        name = "the output" if path == ROOT else path
        if tensor.shape != region.shape:
            message = f"{name} has shape {list(tensor.shape)}, expected {list(region.shape)}"
        elif tensor.dtype != region.dtype:
            message = f"{name} has dtype {tensor.dtype}, expected {region.dtype}"
        elif tensor.fault:
            message = f"{name}: {tensor.fault}"
        else:
            continue
        raise CandidateStopped(Status.WRONG_OUTPUT, message)
    if context.leaves and not any(tensor.differentiable for tensor in reply.tensors):
        raise CandidateStopped(
            Status.NO_GRADIENT,
            "the output does not require a gradient: wrap the kernel in a torch.autograd.Function with a "
            "backward, or judge only outputs with --forward-only",
        )


def _backward(
    context: CaseContext,
    worker: WorkerHandle,
    clock: Clock,
    draw: Draw,
    cotangent: Sequence[torch.Tensor],
    *,
    constant: float | None = None,
    ways: Sequence[str] = (),
    alone: int | None = None,
) -> dict[str, torch.Tensor | str]:
    """Have the candidate run backward; return private copies of its gradients.

    A string in place of a gradient says what is wrong with it.

    Args:
        context: The case's context.
        worker: The candidate's worker.
        clock: The seconds that the candidate may use.
        draw: The trial's draw.
        cotangent: One tensor per output.
        constant: A power of two, given if all elements of a cotangent are equal. The candidate gets
            that one element times the factor, expanded. The judge divides the gradients by the
            factor.
        ways: Further ways of the call (see ``Usage``).
        alone: The only output that gets its cotangent; None for all.
    """
    exchange, regions = context.exchange, context.exchange.cotangents
    if TRANSPOSED in ways:
        regions = tuple(replace(region, order=transposed_order(region.shape)) for region in regions)
    for region, tensor in zip(regions, cotangent, strict=True):
        if constant is None:
            exchange.write(region, tensor)
        else:
            exchange.write_first(region, tensor, constant)
    wanted = {name: exchange.gradients[name] for name in context.leaves}
    exchange.poison(list(wanted.values()))
    exchange.settle()
    gaps = next((along for way, along in GAPS.items() if way in ways), ())
    command = backward_command(
        context, regions, expanded=constant is not None, twice=TWICE in ways, gaps=gaps, alone=alone
    )
    reply = worker.request(command, clock, "running backward")
    if not isinstance(reply, Gradients):
        raise stop_for(reply, context.faults)
    context.faults.take(reply.reports)
    exchange.check_untouched(draw.inputs)
    for region, tensor in zip(regions, cotangent, strict=True):
        if not exchange.holds(region, tensor, constant):
            message = (
                "backward changes grad_output in place, but autograd passes it to other branches as well: copy it first"
            )
            raise CandidateStopped(Status.WRONG_GRADIENT, message)
    _check_unasked(reply.unasked, context, draw)
    positions = {name: position for position, name in exchange.input_names.items()}
    keys = {name: input_key(positions[name]) if name in positions else context.names[name] for name in wanted}
    missing = [name for name, key in keys.items() if key in reply.missing]
    if len(missing) == len(wanted):
        if not set(missing) & _reached(context, draw):
            raise ProblemError(in_one_draw_alone(missing[0]))
        raise CandidateStopped(Status.NO_GRADIENT, "backward reaches no input and no parameter")
    results: dict[str, torch.Tensor | str] = {}
    for name, region in wanted.items():
        if name in missing:
            results[name] = "no gradient, but the reference has one"
        else:
            fault = shortened(reply.faults.get(keys[name], ""), MAX_FAULT_CHARACTERS)
            results[name] = fault or exchange.take(region).div_(constant or 1.0)
    return results


def _repeated(
    context: CaseContext, worker: WorkerHandle, clock: Clock, draw: Draw, first: Sequence[torch.Tensor]
) -> list[torch.Tensor] | None:
    """Have the candidate run a trial's forward again.

    Returns:
        Private copies of its outputs; None if they are the first one's bit for bit.

    Raises:
        CandidateStopped: The candidate failed, or its outputs have another form.
    """
    exchange = context.exchange
    exchange.poison(exchange.outputs)
    exchange.settle()
    reply = worker.request(Repeat(), clock, "running forward again")
    if not isinstance(reply, Outputs):
        raise stop_for(reply, context.faults)
    context.faults.take(reply.reports)
    exchange.check_untouched(draw.inputs, set(reply.written) - context.reference.written)
    _check_form(exchange.outputs, reply, context)
    if all(exchange.holds(region, tensor, None) for region, tensor in zip(exchange.outputs, first, strict=True)):
        return None
    return [exchange.take(region) for region in exchange.outputs]


def _reached(context: CaseContext, draw: Draw) -> set[str]:
    """Return the leaves that get a gradient of the reference in this draw, which may not be those of others."""
    graph = context.reference.eager(draw, forward_seed(context, 0))
    return set(differentiable_leaves(graph.gradients([torch.ones_like(one) for one in graph.outputs])))


def _check_unasked(names: Sequence[str], context: CaseContext, draw: Draw) -> None:
    """Check that nothing got a gradient to which the reference gives none.

    Raises:
        ProblemError: The reference gives it one in this draw.
        CandidateStopped: ``WRONG_GRADIENT``: an input that the reference detaches, or a parameter
            that it freezes, got one. The candidate's own further parameters may.
    """
    known = {input_key(position): name for position, name in context.exchange.input_names.items()}
    known.update((own, name) for name, own in context.names.items())
    for key in names:
        if key in known and known[key] not in context.leaves:
            # It is no leaf of the case, and not only frozen in this trial.
            if known[key] not in context.exchange.gradients and known[key] in _reached(context, draw):
                raise ProblemError(in_one_draw_alone(known[key]))
            message = (
                f"gradient of {known[key]}: the reference gives it none, but the candidate does; detach it, or keep "
                "requires_grad=False"
            )
            raise CandidateStopped(Status.WRONG_GRADIENT, message)
