"""One trial: draw, let the candidate run, evaluate the reference, compare.

The candidate runs first and the reference after it: when an expected value comes to exist, what the candidate returned
already lies in the judge's private memory. Only where the reference has kinks does the judge evaluate its forward
before that, to choose the inputs; that stays in the judge's process, and nothing of it is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from harness.judge.compare.comparison import Answer, Comparison, TrialResult
from harness.judge.exchange.digests import Digests
from harness.judge.exchange.exchange import Exchange, same_bytes
from harness.judge.inputs.buffers import PREFIX
from harness.judge.inputs.draws import Draw, cotangents, derive_seed
from harness.judge.inputs.situations import CONSTANT, Usage
from harness.judge.process.faults import MAX_MESSAGE_CHARACTERS, Faults, stop_for
from harness.judge.process.handle import CandidateStopped, Clock, WorkerHandle
from harness.judge.reference.kinks import Kinks, Settled
from harness.judge.reference.reference import Reference
from harness.judge.reference.reference_cache import Known
from harness.records.record import PrecisionClass, Status
from harness.records.rules import PROTOCOL
from harness.system.text import shortened
from harness.wire.arena import region_bytes
from harness.wire.messages import (
    Backward,
    Forward,
    Gradients,
    Outputs,
    Part,
    Region,
    input_key,
)
from harness.wire.structure import ROOT, difference, paths_of

#: What is wrong with a gradient's form.
MAX_FAULT_CHARACTERS = 1000
#: A trial that calls the candidate once, and wants all gradients.
ORDINARY = Usage()
THREAD_ORDERS = ("forward", "reverse", "random")
#: Names of digests: of all that a trial gives, and of a gradient, before the leaf's name.
GIVEN, GRADIENT = "given", "gradient of "


@dataclass(frozen=True)
class Setting:
    """What stays the same over the trials of a case.

    Attributes:
        exchange: The arena.
        reference: Evaluates the reference.
        names: The reference's parameter and buffer names to the candidate's.
        leaves: The leaves that the reference differentiates; empty where it differentiates nothing.
        structure: What the reference's outputs come in.
        precision: The class under which errors are judged.
        secret: What seeds derive from.
        kinks: Settles draws; None where the reference has no kinks.
        buffers: The reference's buffers that are looked at after a forward.
        known: What is known of the reference.
        is_relaxed: Whether budgets are those of ``--precision relaxed``.
        faults: What the emulator reports, and what comes of it.
        gauges_at_need: Whether eager's errors are measured only where the least budgets do not do (``Comparison``).
    """

    exchange: Exchange
    reference: Reference
    names: Mapping[str, str]
    leaves: tuple[str, ...]
    structure: tuple[Part, ...]
    precision: PrecisionClass
    secret: str
    kinks: Kinks | None = None
    buffers: tuple[str, ...] = ()
    known: Known = field(default_factory=Known)
    is_relaxed: bool = False
    faults: Faults = field(default_factory=Faults)
    gauges_at_need: bool = False


def received_outputs(setting: Setting, worker: WorkerHandle, clock: Clock, draw: Draw) -> list[torch.Tensor]:
    """What a forward without gradients returns: private copies of its outputs.

    Raises:
        CandidateStopped: The candidate did not get as far, or its outputs have another form than the reference's.
    """
    setting = replace(setting, leaves=())
    return _forward(setting, worker, clock, draw, forward_seed(setting, 0), THREAD_ORDERS[0])[0]


def settle(setting: Setting, draw: Draw, trial: int) -> Draw | Settled:
    """A trial's draw, kept from kinks where the reference has them.

    Raises:
        ProblemError: The reference does not run.
    """
    return draw if setting.kinks is None else setting.kinks.settle(draw, forward_seed(setting, trial))


def run_trial(
    setting: Setting,
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
        setting: The case's setting.
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
    seed = forward_seed(setting, trial)
    settled = drawn if isinstance(drawn, Settled) else None
    draw = drawn.draw if isinstance(drawn, Settled) else drawn
    leaves = () if usage.without_gradients else tuple(name for name in setting.leaves if name not in usage.frozen)
    setting = replace(setting, leaves=leaves)
    if usage.aside and not _has_room_aside(setting, draw):
        usage = replace(usage, aside="")
    try:
        received, buffers = _forward(setting, worker, clock, draw, seed, thread_order, usage)
    except CandidateStopped as stop:
        if stop.status is Status.WRONG_OUTPUT:  # of another form; unless the reference's has changed too
            setting.reference.check_forms(draw, seed, [region.shape for region in setting.exchange.outputs])
        raise
    digests = Digests()
    if not normal_only:
        for tensor in _given(draw):
            digests.add(GIVEN, tensor)
        digests.add_all(_named(setting, received, buffers))
    comparison = Comparison(
        setting.reference,
        draw,
        seed,
        setting.leaves,
        setting.precision,
        trial,
        settled,
        setting.is_relaxed,
        setting.known.gauges(("trial", trial), draw),
        setting.gauges_at_need,
    )
    outputs: list[torch.Tensor] | None = received
    answers: list[Answer] = []
    if setting.leaves:
        # "The output itself" is what the candidate returned: expected values stay with the judge.
        seeded = cotangents(received, derive_seed(setting.secret, "trial", trial, "cotangent"))
        for name, cotangent in itertools.islice(seeded, 1 if normal_only else None):  # the normal one is the first
            is_constant = name == CONSTANT
            gradients = _backward(setting, worker, clock, draw, cotangent, usage.scale if is_constant else None)
            digests.add_all({} if normal_only else gradients, GRADIENT)
            answers.append(Answer(name, cotangent, gradients))
            # What is compared together takes one evaluation of the reference, as long as there is room to keep it.
            if not setting.reference.has_room_beside(answers[-1].bytes):
                comparison.add(outputs, answers, buffers)
                outputs, answers = None, []
    if outputs is not None or answers:
        comparison.add(outputs, answers, buffers)
    result = comparison.result(None if normal_only else answers)
    result.usage = usage
    result.digests = digests.finished()
    return result


def results_of(
    setting: Setting, worker: WorkerHandle, clock: Clock, draw: Draw, trial: int, thread_order: str
) -> dict[str, torch.Tensor]:
    """What a forward, and a backward under the normal cotangent, return: private copies under their digests' names.

    Raises:
        CandidateStopped: The candidate did not get as far.
    """
    seed = forward_seed(setting, trial)
    received, buffers = _forward(setting, worker, clock, draw, seed, thread_order)
    results = _named(setting, received, buffers)
    if setting.leaves:
        _, cotangent = next(cotangents(received, derive_seed(setting.secret, "trial", trial, "cotangent")))
        gradients = _backward(setting, worker, clock, draw, cotangent)
        results |= {GRADIENT + name: one for name, one in gradients.items() if isinstance(one, torch.Tensor)}
    return results


def _named(
    setting: Setting, received: Sequence[torch.Tensor], buffers: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    named = dict(zip(paths_of(setting.structure), received, strict=True))
    return named | {PREFIX + name: buffer for name, buffer in buffers.items()}


def _given(draw: Draw) -> list[torch.Tensor]:
    """The tensors that the candidate is given."""
    state = (*draw.model.parameters(), *draw.model.buffers())
    return [value for value in (*draw.inputs, *state) if isinstance(value, torch.Tensor)]


def forward_seed(setting: Setting, trial: int) -> int:
    """Seed of whatever a trial's forward draws."""
    return derive_seed(setting.secret, "trial", trial, "forward")


def _forward(
    setting: Setting,
    worker: WorkerHandle,
    clock: Clock,
    draw: Draw,
    seed: int,
    thread_order: str,
    usage: Usage = ORDINARY,
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Have the candidate run forward; private copies of its outputs, and of the buffers that are to be compared."""
    exchange = setting.exchange
    command = forward_command(setting, draw, seed, thread_order, bool(setting.leaves), usage)
    reply = worker.request(command, clock, "running forward")
    if not isinstance(reply, Outputs):
        raise stop_for(reply, setting.faults)
    setting.faults.take(reply.reports)
    exchange.check_untouched(draw.inputs)
    _check_form(exchange.outputs, reply, setting)
    return [exchange.take(region) for region in exchange.outputs], _buffers(setting, reply, draw)


def backward_command(setting: Setting, expanded: bool = False) -> Backward:
    """The command that differentiates with what lies in the cotangents' regions (see ``Backward``)."""
    exchange = setting.exchange
    positions = {name: position for position, name in exchange.input_names.items()}
    regions = {name: exchange.gradients[name] for name in setting.leaves}
    return Backward(
        exchange.cotangents,
        tuple((positions[name], region) for name, region in regions.items() if name in positions),
        tuple((setting.names[name], region) for name, region in regions.items() if name not in positions),
        expanded,
    )


def _has_room_aside(setting: Setting, draw: Draw) -> bool:
    """Whether a second call may run before a result is read.

    Not where it would change buffers that are compared, nor where there is no room for a second instance and its
    result.
    """
    if setting.reference.changes:
        return False
    given = (*draw.inputs, *draw.model.parameters())
    inputs = sum(value.nbytes for value in given if isinstance(value, torch.Tensor))
    outputs = sum(region_bytes(region.shape, region.dtype) for region in setting.exchange.outputs)
    return setting.reference.has_room_beside(2 * (inputs + outputs))


def forward_command(
    setting: Setting, draw: Draw, seed: int, thread_order: str, differentiate: bool, usage: Usage = ORDINARY
) -> Forward:
    """Write a draw's inputs and state into the arena; the command that runs forward on them."""
    exchange = setting.exchange
    inputs = exchange.write_inputs(draw.inputs)
    ours = {**dict(draw.model.named_parameters()), **dict(draw.model.named_buffers())}
    state = []
    for name, theirs in setting.names.items():
        exchange.write(exchange.state[name], ours[name])
        state.append((theirs, exchange.state[name]))
    buffers = tuple((setting.names[name], exchange.buffers[name]) for name in setting.buffers)
    exchange.poison([*exchange.outputs, *(region for _, region in buffers)])
    exchange.settle()
    positions = {name: position for position, name in exchange.input_names.items()}
    frozen = tuple(input_key(positions[name]) if name in positions else setting.names[name] for name in usage.frozen)
    return Forward(
        inputs, tuple(state), exchange.outputs, buffers, differentiate, thread_order, seed, frozen,
        usage.aside, usage.calls, usage.aside_calls,
    )  # fmt: skip


def _buffers(setting: Setting, reply: Outputs, draw: Draw) -> dict[str, torch.Tensor]:
    """Private copies of the buffers that the reference changes, by its names.

    Raises:
        CandidateStopped: One cannot be compared, or one that the reference leaves alone was changed.
    """
    found = {}
    for name in setting.buffers:
        if fault := reply.buffer_faults.get(setting.names[name]):
            raise CandidateStopped(Status.WRONG_OUTPUT, f"buffer {name}: {shortened(fault, MAX_MESSAGE_CHARACTERS)}")
        buffer = setting.exchange.take(setting.exchange.buffers[name])
        if name in setting.reference.changes:
            found[name] = buffer
        elif not same_bytes(buffer, draw.model.get_buffer(name)):
            message = f"forward changes the buffer {name}, which the reference's leaves alone"
            raise CandidateStopped(Status.WRONG_OUTPUT, message)
    return found


def _check_form(expected: Sequence[Region], reply: Outputs, setting: Setting) -> None:
    """Structure, shape, dtype and device of what the candidate returned."""
    if words := difference(setting.structure, reply.structure):
        raise CandidateStopped(Status.WRONG_OUTPUT, words)
    if len(reply.tensors) != len(expected):
        raise CandidateStopped(Status.CHEATED, "the worker described tensors that it did not name", rule=PROTOCOL)
    for path, tensor, region in zip(paths_of(setting.structure), reply.tensors, expected, strict=True):
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
    if setting.leaves and not any(tensor.differentiable for tensor in reply.tensors):
        raise CandidateStopped(
            Status.NO_GRADIENT,
            "the output does not require a gradient: wrap the kernel in a torch.autograd.Function with a backward, "
            "or have outputs alone judged with --forward-only",
        )


def _backward(
    setting: Setting,
    worker: WorkerHandle,
    clock: Clock,
    draw: Draw,
    cotangent: Sequence[torch.Tensor],
    constant: float | None = None,
) -> dict[str, torch.Tensor | str]:
    """Have the candidate run backward; private copies of its gradients, or a word for what is wrong with one.

    Args:
        setting: The case's setting.
        worker: The candidate's.
        clock: The seconds that it may use.
        draw: The trial's draw.
        cotangent: One tensor per output.
        constant: Where all elements of a cotangent are the same, a power of two that the candidate gets it multiplied
            by. It gets one element, expanded, and its gradients are divided by the factor again.
    """
    exchange = setting.exchange
    for region, tensor in zip(exchange.cotangents, cotangent, strict=True):
        if constant is None:
            exchange.write(region, tensor)
        else:
            exchange.write_first(region, tensor, constant)
    wanted = {name: exchange.gradients[name] for name in setting.leaves}
    exchange.poison(list(wanted.values()))
    exchange.settle()
    reply = worker.request(backward_command(setting, constant is not None), clock, "running backward")
    if not isinstance(reply, Gradients):
        raise stop_for(reply, setting.faults)
    setting.faults.take(reply.reports)
    exchange.check_untouched(draw.inputs)
    for region, tensor in zip(exchange.cotangents, cotangent, strict=True):
        if not exchange.holds(region, tensor, constant):
            message = "backward changes grad_output in place, which autograd gives to other branches as well: copy it"
            raise CandidateStopped(Status.WRONG_GRADIENT, message)
    positions = {name: position for position, name in exchange.input_names.items()}
    keys = {name: input_key(positions[name]) if name in positions else setting.names[name] for name in wanted}
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
