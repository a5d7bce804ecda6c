"""Certifies a candidate's speed by the judge's clock: windows, their bound, the audited call."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import replace

import torch

from harness.judge.compare.comparison import Comparison
from harness.judge.compare.received import ReceivedGradients
from harness.judge.compare.trial_result import TrialResult
from harness.judge.exchange.slots import Slots, bytes_of_call
from harness.judge.inputs.draws import Draw, derive_seed
from harness.judge.inputs.memory_fit import free_memory
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.reference.kinks import Settled
from harness.judge.timing.paired_timing import BaselineError, ClockRuleBroken, Series, Side, asked
from harness.judge.timing.timing_target import Direction, TimingTarget, cotangents_of
from harness.judge.timing.windows import LEAST_ROUNDS, Call, Loops, Uncertified, WindowTimes
from harness.timing.certificate import LEAST_RESOLUTION_MS, Certificate, certificate
from harness.wire.commands import DropSlots, Loop
from harness.wire.cuda_memory import DeviceMemoryError
from harness.wire.replies import Released

#: Duration of a short window in milliseconds, within the bounds on its calls.
WINDOW_MS = 8.0
MOST_CALLS = 64
#: A candidate whose call takes as long as this is called once in a short window, in one round.
SLOW_MS = 250.0
#: The most tensors in all slots; their descriptions must fit a message.
MOST_REGIONS = 16_000
#: The share of the device's free memory for slots and for copies of their results.
MEMORY_SHARE = 0.9
#: Rounds of the second series, after a claim outside the bound of the first: noise goes away, a lie
#: stays.
ROUNDS_OF_DOUBT = 7
#: Seconds that drawing the inputs of a short window may take.
DRAWING_S = 0.1


def certified(
    target: TimingTarget, direction: Direction, mine: Side, eager: Side, series: Series
) -> tuple[Certificate, TrialResult]:
    """Measure windows of a direction; return what they prove, and the audited call's result.

    Raises:
        ClockRuleBroken: The candidate's claims are below the bound, even beside longer windows.
        CandidateStopped: The candidate failed.
        Uncertified: Memory is too short for windows, or they prove nothing. That includes calls
            shorter than the variation of a launch.
    """
    with contextlib.ExitStack() as at_failure:
        at_failure.callback(_give_back, mine, eager)
        try:
            torch.cuda.empty_cache()
            calls = _calls(target, direction, series)
            if not calls:
                raise Uncertified("the device has too little memory for calls in a row")
            exchange = target.context.exchange
            cotangents = exchange.cotangents if direction.backward[0] is not None else ()
            results = tuple(direction.results.values())
            with contextlib.closing(Slots(exchange, results, cotangents, 2 * calls, target.device)) as slots:
                sides = mine, eager
                proof, found, fault = _proven(target, direction, sides, series, slots=slots, calls=calls)
            try:
                audit = _compared(target, direction, found)
            except Uncertified:
                if fault:
                    raise ClockRuleBroken(fault, series) from None
                raise
            if fault and proof.at_least_ms < LEAST_RESOLUTION_MS:
                raise Uncertified(f"calls are too short for the judge's clock, and {fault}", audit)
            if fault:
                raise ClockRuleBroken(fault, series, audit)
        # This is the judge's own memory, so the verdict stands.
        except (torch.OutOfMemoryError, DeviceMemoryError):
            raise Uncertified("the device has too little memory for calls in a row") from None
        at_failure.pop_all()  # All went well, and the sides have given the slots back.
    return proof, audit


def _give_back(*sides: Side) -> None:
    """Have the sides that still run unmap the slots, whatever happened."""
    for side in sides:
        if not side.worker.is_closed:
            with contextlib.suppress(CandidateStopped, BaselineError):
                asked(side, DropSlots(), Released)


def _calls(target: TimingTarget, direction: Direction, series: Series) -> int:
    """Return the number of calls in a short window; 0 where memory cannot hold even one.

    There are enough calls for the clock, and no more than can be drawn and held.
    """
    exchange = target.context.exchange
    inputs, results = ([region for _, region in exchange.tensor_inputs], list(direction.results.values()))
    given = [*inputs, *(exchange.cotangents if direction.backward[0] is not None else ())]
    # Memory holds two sets of results, and the given tensors once more while they are drawn.
    free = free_memory(target.device) * MEMORY_SHARE - bytes_of_call([*results, *results, *given])
    # The first slot lies in the trials' arena.
    slots = free // max(1, bytes_of_call([*given, *results])) + 1
    slots = min(slots, MOST_REGIONS // (len(given) + len(results)))
    started = time.monotonic()
    target.fresh_inputs(target.seed("how long"))
    drawing_s = max(time.monotonic() - started, 1e-6)
    # The candidate reports neither of the two. One call of a slow candidate is a window of its own,
    # whatever eager takes, and its speed is far from the bound on eager's.
    call_ms = min(series.eager.median_ms, series.candidate.window_ms)
    if series.candidate.window_ms >= SLOW_MS:
        call_ms = WINDOW_MS
    wanted = min(math.ceil(WINDOW_MS / call_ms), math.ceil(DRAWING_S / drawing_s), MOST_CALLS)
    return int(min(max(1, wanted), slots // 2))


def _proven(
    target: TimingTarget, direction: Direction, sides: tuple[Side, Side], series: Series, *, slots: Slots, calls: int
) -> tuple[Certificate, WindowTimes, str]:
    """Return what windows prove, and an objection to the claims that longer windows confirm, or ""."""
    commands = [Loop((), leaves, False) for leaves in direction.leaves]
    likeness = [target.likeness(name) for name in direction.results]
    claims = series.candidate.median_ms, series.eager.median_ms

    def fresh(seed: int, in_full: bool) -> Call:
        inputs = target.fresh_inputs(derive_seed(str(seed), "inputs"))
        cotangents = cotangents_of(target, derive_seed(str(seed), "cotangents"), direction)
        if not in_full:
            return Call(inputs, cotangents, seed)
        drawn: Draw | Settled = replace(target.first, inputs=inputs)
        if target.context.kinks is not None:
            drawn = target.context.kinks.settle(replace(target.first, inputs=inputs), derive_seed(str(seed), "draws"))
            inputs = drawn.draw.inputs
        return Call(inputs, cotangents, seed, drawn)

    is_slow = series.candidate.window_ms >= SLOW_MS
    for least_rounds in (1 if is_slow else LEAST_ROUNDS, ROUNDS_OF_DOUBT):
        secret = f"{target.context.secret}:{direction.name}:{least_rounds}:{series.head_start_us}"
        pair = commands[0], commands[1]
        loops = Loops(sides, pair, slots, calls=calls, fresh=fresh, likeness=likeness, secret=secret)
        found = loops.run(least_rounds)
        proof = certificate(found.candidate, found.eager, found.storing)
        if proof.accepts(*claims):
            return proof, found, ""
    fault = (
        f"the worker claims {claims[0]:.4g} ms for a call ({direction.name}), but by the judge's clock {calls} more "
        f"calls took {found.candidate.slope_ms * calls:.4g} ms more: at least {proof.at_least_ms:.4g} ms each"
    )
    return proof, found, fault


def _compared(target: TimingTarget, direction: Direction, found: WindowTimes) -> TrialResult:
    """Compare the audited call with the exact reference.

    Raises:
        Uncertified: The result is wrong, but the reference has buffers that earlier calls may have
            changed.
    """
    context, drawn, seed = target.context, found.audited.drawn, found.audited.seed
    draw, settled = (drawn.draw, drawn) if isinstance(drawn, Settled) else (drawn, None)
    comparison = Comparison(
        context.reference,
        draw,
        seed,
        context.leaves,
        context.precision,
        trial=target.trial,
        settled=settled,
        is_relaxed=context.is_relaxed,
        gauges=context.known.gauges(("call", direction.name, seed), draw),
        gauges_at_need=context.gauges_at_need,
    )
    if direction.backward[0] is None:
        comparison.add(found.results)
    else:
        # Use the cotangents that the judge drew: the candidate can write to those in the arena.
        gradients = dict(zip(context.leaves, found.results, strict=True))
        comparison.add(None, [ReceivedGradients("normal", found.audited.cotangents, gradients)])
    result = comparison.result()
    if result.failed and any(True for _ in target.first.model.buffers()):
        raise Uncertified("the reference has buffers, which earlier calls may have changed")
    return result
