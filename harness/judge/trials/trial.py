"""One trial: draw, let the candidate run, evaluate the reference, compare.

The candidate runs first and the reference after it: when an expected value comes to exist, what the candidate returned
already lies in the judge's private memory. Only where the reference has kinks does the judge evaluate its forward
before that, to choose the inputs; that stays in the judge's process, and nothing of it is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from harness.judge.case_context import ORDINARY, CaseContext, backward_command, forward_command
from harness.judge.compare.comparison import Comparison, ReceivedGradients, TrialResult
from harness.judge.exchange.digests import Digests
from harness.judge.exchange.exchange import same_bytes
from harness.judge.inputs.buffers import PREFIX
from harness.judge.inputs.draws import Draw, cotangents, derive_seed
from harness.judge.inputs.situations import CONSTANT, Usage
from harness.judge.process.faults import MAX_MESSAGE_CHARACTERS, stop_for
from harness.judge.process.handle import CandidateStopped, Clock, WorkerHandle
from harness.judge.reference.kinks import Settled
from harness.records.record import Status
from harness.records.rules import PROTOCOL
from harness.system.text import shortened
from harness.wire.arena import region_bytes
from harness.wire.messages import ANOTHER_INSTANCE, SAME_INSTANCE, Gradients, Outputs, Region, input_key
from harness.wire.structure import ROOT, difference, paths_of

#: What is wrong with a gradient's form.
MAX_FAULT_CHARACTERS = 1000
THREAD_ORDERS = ("forward", "reverse", "random")
#: Names of digests: of all that a trial gives, and of a gradient, before the leaf's name.
GIVEN, GRADIENT = "given", "gradient of "


def received_outputs(context: CaseContext, worker: WorkerHandle, clock: Clock, draw: Draw) -> list[torch.Tensor]:
    """What a forward without gradients returns: private copies of its outputs.

    Raises:
        CandidateStopped: The candidate did not get as far, or its outputs have another form than the reference's.
    """
    context = replace(context, leaves=())
    return _forward(context, worker, clock, draw, forward_seed(context, 0), THREAD_ORDERS[0])[0]


def settle(context: CaseContext, draw: Draw, trial: int) -> Draw | Settled:
    """A trial's draw, kept from kinks where the reference has them.

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
    thread_order: str,
    normal_only: bool = False,
    usage: Usage = ORDINARY,
) -> TrialResult:
    """Run one trial on what ``settle`` gave.

    Args:
        context: The case's context.
        worker: The candidate's.
        clock: The seconds that it may still use.
        drawn: What it is given.
        trial: The trial's number; seeds derive from it.
        thread_order: The order in which the emulator runs threads.
        normal_only: Judge gradients under the normal cotangent alone, and take no digests.
        usage: How to call the candidate.

    Raises:
        CandidateStopped: The candidate did not get as far as values to compare.
        ProblemError: The reference does not run.
    """
    seed = forward_seed(context, trial)
    settled = drawn if isinstance(drawn, Settled) else None
    draw = drawn.draw if isinstance(drawn, Settled) else drawn
    leaves = () if usage.without_gradients else tuple(name for name in context.leaves if name not in usage.frozen)
    context = replace(context, leaves=leaves)
    if usage.aside == SAME_INSTANCE and context.reference.changes:  # whose buffers a further call would change
        usage = replace(usage, aside=ANOTHER_INSTANCE)
    if usage.aside and not _has_room_aside(context, draw):
        usage = replace(usage, aside="")
    try:
        received, buffers = _forward(context, worker, clock, draw, seed, thread_order, usage)
    except CandidateStopped as stop:
        if stop.status is Status.WRONG_OUTPUT:  # of another form; unless the reference's has changed too
            context.reference.check_forms(draw, seed, [region.shape for region in context.exchange.outputs])
        raise
    digests = Digests()
    if not normal_only:
        for tensor in _given(draw):
            digests.add(GIVEN, tensor)
        digests.add_all(_named(context, received, buffers))
    comparison = Comparison(
        context.reference,
        draw,
        seed,
        context.leaves,
        context.precision,
        trial,
        settled,
        context.is_relaxed,
        context.known.gauges(("trial", trial), draw),
        context.gauges_at_need,
    )
    outputs: list[torch.Tensor] | None = received
    answers: list[ReceivedGradients] = []
    if context.leaves:
        # "The output itself" is what the candidate returned: expected values stay with the judge.
        seeded = cotangents(received, derive_seed(context.secret, "trial", trial, "cotangent"))
        for name, cotangent in itertools.islice(seeded, 1 if normal_only else None):  # the normal one is the first
            is_constant = name == CONSTANT
            gradients = _backward(context, worker, clock, draw, cotangent, usage.scale if is_constant else None)
            digests.add_all({} if normal_only else gradients, GRADIENT)
            answers.append(ReceivedGradients(name, cotangent, gradients))
            # What is compared together takes one evaluation of the reference, as long as there is room to keep it.
            if not context.reference.has_room_beside(answers[-1].bytes):
                comparison.add(outputs, answers, buffers)
                outputs, answers = None, []
    if outputs is not None or answers:
        comparison.add(outputs, answers, buffers)
    result = comparison.result(None if normal_only else answers)
    result.usage = usage
    result.digests = digests.finished()
    return result


def results_of(
    context: CaseContext, worker: WorkerHandle, clock: Clock, draw: Draw, trial: int, thread_order: str
) -> dict[str, torch.Tensor]:
    """What a forward, and a backward under the normal cotangent, return: private copies under their digests' names.

    Raises:
        CandidateStopped: The candidate did not get as far.
    """
    seed = forward_seed(context, trial)
    received, buffers = _forward(context, worker, clock, draw, seed, thread_order)
    results = _named(context, received, buffers)
    if context.leaves:
        _, cotangent = next(cotangents(received, derive_seed(context.secret, "trial", trial, "cotangent")))
        gradients = _backward(context, worker, clock, draw, cotangent)
        results |= {GRADIENT + name: one for name, one in gradients.items() if isinstance(one, torch.Tensor)}
    return results


def _named(
    context: CaseContext, received: Sequence[torch.Tensor], buffers: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    named = dict(zip(paths_of(context.structure), received, strict=True))
    return named | {PREFIX + name: buffer for name, buffer in buffers.items()}


def _given(draw: Draw) -> list[torch.Tensor]:
    """The tensors that the candidate is given."""
    state = (*draw.model.parameters(), *draw.model.buffers())
    return [value for value in (*draw.inputs, *state) if isinstance(value, torch.Tensor)]


def forward_seed(context: CaseContext, trial: int) -> int:
    """Seed of whatever a trial's forward draws."""
    return derive_seed(context.secret, "trial", trial, "forward")


def _forward(
    context: CaseContext,
    worker: WorkerHandle,
    clock: Clock,
    draw: Draw,
    seed: int,
    thread_order: str,
    usage: Usage = ORDINARY,
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Have the candidate run forward; private copies of its outputs, and of the buffers that are to be compared."""
    exchange = context.exchange
    command = forward_command(context, draw, seed, thread_order, bool(context.leaves), usage)
    reply = worker.request(command, clock, "running forward")
    if not isinstance(reply, Outputs):
        raise stop_for(reply, context.faults)
    context.faults.take(reply.reports)
    exchange.check_untouched(draw.inputs)
    _check_form(exchange.outputs, reply, context)
    return [exchange.take(region) for region in exchange.outputs], _buffers(context, reply, draw)


def _has_room_aside(context: CaseContext, draw: Draw) -> bool:
    """Whether there is room for a second instance and its result, which a call before a result is read may take."""
    given = (*draw.inputs, *draw.model.parameters())
    inputs = sum(value.nbytes for value in given if isinstance(value, torch.Tensor))
    outputs = sum(region_bytes(region.shape, region.dtype) for region in context.exchange.outputs)
    return context.reference.has_room_beside(2 * (inputs + outputs))


def _buffers(context: CaseContext, reply: Outputs, draw: Draw) -> dict[str, torch.Tensor]:
    """Private copies of the buffers that the reference changes, by its names.

    Raises:
        CandidateStopped: One cannot be compared, or one that the reference leaves alone was changed.
    """
    found = {}
    for name in context.buffers:
        if fault := reply.buffer_faults.get(context.names[name]):
            raise CandidateStopped(Status.WRONG_OUTPUT, f"buffer {name}: {shortened(fault, MAX_MESSAGE_CHARACTERS)}")
        buffer = context.exchange.take(context.exchange.buffers[name])
        if name in context.reference.changes:
            found[name] = buffer
        elif not same_bytes(buffer, draw.model.get_buffer(name)):
            message = f"forward changes the buffer {name}, which the reference's leaves alone"
            raise CandidateStopped(Status.WRONG_OUTPUT, message)
    return found


def _check_form(expected: Sequence[Region], reply: Outputs, context: CaseContext) -> None:
    """Structure, shape, dtype and device of what the candidate returned."""
    if words := difference(context.structure, reply.structure):
        raise CandidateStopped(Status.WRONG_OUTPUT, words)
    if len(reply.tensors) != len(expected):
        raise CandidateStopped(Status.CHEATED, "the worker described tensors that it did not name", rule=PROTOCOL)
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
            "the output does not require a gradient: wrap the kernel in a torch.autograd.Function with a backward, "
            "or have outputs alone judged with --forward-only",
        )


def _backward(
    context: CaseContext,
    worker: WorkerHandle,
    clock: Clock,
    draw: Draw,
    cotangent: Sequence[torch.Tensor],
    constant: float | None = None,
) -> dict[str, torch.Tensor | str]:
    """Have the candidate run backward; private copies of its gradients, or a word for what is wrong with one.

    Args:
        context: The case's context.
        worker: The candidate's.
        clock: The seconds that it may use.
        draw: The trial's draw.
        cotangent: One tensor per output.
        constant: Where all elements of a cotangent are the same, a power of two that the candidate gets it multiplied
            by. It gets one element, expanded, and its gradients are divided by the factor again.
    """
    exchange = context.exchange
    for region, tensor in zip(exchange.cotangents, cotangent, strict=True):
        if constant is None:
            exchange.write(region, tensor)
        else:
            exchange.write_first(region, tensor, constant)
    wanted = {name: exchange.gradients[name] for name in context.leaves}
    exchange.poison(list(wanted.values()))
    exchange.settle()
    reply = worker.request(backward_command(context, constant is not None), clock, "running backward")
    if not isinstance(reply, Gradients):
        raise stop_for(reply, context.faults)
    context.faults.take(reply.reports)
    exchange.check_untouched(draw.inputs)
    for region, tensor in zip(exchange.cotangents, cotangent, strict=True):
        if not exchange.holds(region, tensor, constant):
            message = "backward changes grad_output in place, which autograd gives to other branches as well: copy it"
            raise CandidateStopped(Status.WRONG_GRADIENT, message)
    positions = {name: position for position, name in exchange.input_names.items()}
    keys = {name: input_key(positions[name]) if name in positions else context.names[name] for name in wanted}
    missing = [name for name, key in keys.items() if key in reply.missing]
    if len(missing) == len(wanted):
        raise CandidateStopped(Status.NO_GRADIENT, "backward reaches no input and no parameter")
    results: dict[str, torch.Tensor | str] = {}
    for name, region in wanted.items():
        if name in missing:
            results[name] = "no gradient, but the reference has one"
        else:
            fault = shortened(reply.faults.get(keys[name], ""), MAX_FAULT_CHARACTERS)
            results[name] = fault or exchange.take(region).div_(constant or 1.0)
    return results
