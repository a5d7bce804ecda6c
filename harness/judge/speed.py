"""Times a candidate that passed: its latencies beside eager's, and what bounds them by the judge's own clock."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from harness.judge.baseline import Baseline, BaselineError
from harness.judge.comparison import Comparison, TrialResult, output_names
from harness.judge.draws import Draw, derive_seed, draw_inputs
from harness.judge.fitting import free_memory
from harness.judge.handle import CandidateStopped, Clock, WorkerHandle
from harness.judge.kinks import Settled
from harness.judge.loops import LEAST_ROUNDS, Call, Found, Likeness, Loops, Uncertified
from harness.judge.series import Series, Side, asked, measure, summary
from harness.judge.slots import Slots, bytes_of_call
from harness.judge.trial import Setting, backward_command, forward_command
from harness.problems import Problem, ProblemModule
from harness.records import Status
from harness.timing.certificate import Certificate, certificate
from harness.wire.arena import dtype_named
from harness.wire.cuda_memory import DeviceMemoryError
from harness.wire.messages import (
    Backward,
    Construct,
    DropSlots,
    Loop,
    Outputs,
    Region,
    Released,
    Time,
    input_key,
)

#: A short window has as many calls as take this long, within bounds.
WINDOW_MS = 8.0
MOST_CALLS = 64
#: Tensors in all slots: their descriptions must fit a message.
MOST_REGIONS = 16_000
#: Of the device's free memory the slots and what is kept of their results may take this share.
MEMORY_SHARE = 0.9
#: Rounds of the second series, where the first left a claim outside its bound: noise goes away, a lie stays.
ROUNDS_OF_DOUBT = 7
#: Seconds that drawing the inputs of a short window may take.
DRAWING_S = 0.1
#: So many elements must be near eager's; where rounding may decide branches, fewer.
AGREEING_SHARE, FLIPPING_SHARE = 0.99, 0.5
#: The median deviation from eager may be so many times the tensor's budget, and this in any case.
MEDIAN_FACTOR, LEAST_MEDIAN = 16, 1e-5


@dataclass(frozen=True)
class Contest:
    """What is timed.

    Attributes:
        problem: The problem.
        module: Its body, run under the case.
        constants: The case's constants, encoded.
        setting: The case's setting, as in the trials.
        first: The first draw, whose state both sides get; its inputs are gone by now.
        construct: What made the candidate's instance.
        plain: The first draw's inputs, None in the place of tensors.
        device: The GPU.
        trial: Number of the first audited call in reports, after those of the trials.
        budgets: The largest relative budget that each output and gradient had in the trials, by its name in reports;
            None for what is little but rounding: eager's and an honest candidate's have nothing in common.
    """

    problem: Problem
    module: ProblemModule
    constants: str
    setting: Setting
    first: Draw
    plain: Sequence[Any]
    construct: Construct
    device: torch.device
    trial: int
    budgets: dict[str, float | None]

    def seed(self, *parts: object) -> int:
        """A seed for a purpose."""
        return derive_seed(self.setting.secret, "timing", *parts)

    def likeness(self, name: str) -> Likeness:
        """How near a result in a row must be to eager's."""
        budget = self.budgets.get(name)
        share = FLIPPING_SHARE if self.setting.kinks is not None else AGREEING_SHARE
        return Likeness(share, None if budget is None else max(LEAST_MEDIAN, MEDIAN_FACTOR * budget))

    def fresh_inputs(self, seed: int) -> list[Any]:
        """The inputs of one call: fresh tensors, and the plain values of the first draw."""
        drawn = draw_inputs(self.problem, self.module, seed, self.device)
        return [
            value if isinstance(value, torch.Tensor) else first for value, first in zip(drawn, self.plain, strict=True)
        ]


@dataclass(frozen=True)
class _Direction:
    """Forward, or forward with backward: what each side is asked for."""

    name: str
    backward: tuple[Backward | None, Backward | None]
    leaves: tuple[tuple[str, ...], tuple[str, ...]]
    results: dict[str, Region]


@dataclass
class Outcome:
    """What timing came to.

    Attributes:
        series: The latencies by direction, as events claim them.
        certified: What the judge's clock proves, by direction.
        audits: The calls that were compared in full.
        reasons: Why a direction is not certified.
    """

    series: list[tuple[str, Series]] = field(default_factory=list)
    certified: dict[str, Certificate] = field(default_factory=dict)
    audits: list[TrialResult] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, direction: str, proof: Certificate, audit: TrialResult) -> None:
        """Take a certificate and the audit behind it in."""
        self.certified[direction] = proof
        self.audits.append(audit)

    def fields(self) -> dict[str, Any]:
        """The fields of a record: samples of all directions, but speed only where it is certified."""
        told = summary(self.series)
        notes = [f"note: speed ({name}) is not certified and not counted: {why}" for name, why in self.reasons.items()]
        for name in self.reasons:
            told[f"{name}_ms"] = None
            told["speedup"].pop(name)
            told["speedup_interval"].pop(name)
            told["samples"][name]["uncertified"] = told["samples"][name].pop(
                "candidate"
            )  # so that nothing compares them
        told["speedup"] = told["speedup"] or None
        certified = {name: asdict(proof) for name, proof in self.certified.items()}
        return {**told, "certified": certified, "message": "\n".join(notes)}


def timed(contest: Contest, worker: WorkerHandle, clock: Clock, baseline: Baseline) -> Outcome:
    """Time the candidate against eager, and certify both.

    Raises:
        CandidateStopped: The candidate failed, or claims what the judge's clock refutes.
        BaselineError: The baseline failed.
    """
    setting = contest.setting
    torch.cuda.empty_cache()
    draw = replace(contest.first, inputs=contest.fresh_inputs(contest.seed("first")))
    command = forward_command(setting, draw, 0, "forward", bool(setting.leaves))
    del draw
    own = {name: name for name in setting.names}
    of_eager = replace(command, state=tuple((name, setting.exchange.state[name]) for name in own))
    construct = replace(contest.construct, own_args=False, init_args=setting.exchange.args)
    outcome = Outcome()
    try:
        eager = baseline.side(contest.problem, contest.constants, construct, setting.exchange.descriptor, of_eager)
        mine = Side(worker, clock)
        asked(mine, command, Outputs)
        for direction in _directions(setting, own):
            series = _series(contest, direction, mine, eager)
            outcome.series.append((direction.name, series))
            try:
                outcome.add(direction.name, *_certified(contest, direction, mine, eager, series))
            except Uncertified as reason:
                outcome.reasons[direction.name] = str(reason)
            if any(audit.failed for audit in outcome.audits):
                break
    finally:
        baseline.release()
    return outcome


def _directions(setting: Setting, own: dict[str, str]) -> list[_Direction]:
    exchange = setting.exchange
    outputs = dict(zip(output_names(len(exchange.outputs)), exchange.outputs, strict=True))
    found = [_Direction("forward", (None, None), ((), ()), outputs)]
    if setting.leaves:
        settings = setting, replace(setting, names=own)
        positions = {name: position for position, name in exchange.input_names.items()}
        leaves = tuple(
            tuple(input_key(positions[name]) if name in positions else one.names[name] for name in setting.leaves)
            for one in settings
        )
        found.append(
            _Direction(
                "forward_backward",
                (backward_command(settings[0]), backward_command(settings[1])),
                (leaves[0], leaves[1]),
                {name: exchange.gradients[name] for name in setting.leaves},
            )
        )
    return found


def _series(contest: Contest, direction: _Direction, mine: Side, eager: Side) -> Series:
    exchange = contest.setting.exchange

    def renew(pair: int) -> Callable[[], object]:
        """Draw a pair's inputs; each side has them written anew, whatever the other did to them."""
        inputs = contest.fresh_inputs(contest.seed(direction.name, pair))
        return lambda: exchange.write_inputs(inputs)

    cotangents = _cotangents(contest, contest.seed(direction.name, "cotangents"), direction)
    for region, cotangent in zip(exchange.cotangents, cotangents, strict=False):
        exchange.write(region, cotangent)
    del cotangents
    commands = (Time(direction.backward[0]), Time(direction.backward[1]))
    return measure((mine, eager), commands, renew, contest.device, random.Random(contest.seed(direction.name)))


def _cotangents(contest: Contest, seed: int, direction: _Direction) -> list[torch.Tensor]:
    """What a call differentiates with: standard normal values; none in a forward."""
    if direction.backward[0] is None:
        return []
    generator = torch.Generator(contest.device).manual_seed(seed)
    return [
        torch.randn(region.shape, generator=generator, device=contest.device).to(dtype_named(region.dtype))
        for region in contest.setting.exchange.cotangents
    ]


def _calls(contest: Contest, direction: _Direction, series: Series) -> int:
    """Calls in a short window: enough for the clock, and as many as can be drawn and held; 0 where not even one can."""
    exchange = contest.setting.exchange
    inputs, results = ([region for _, region in exchange.tensor_inputs], list(direction.results.values()))
    given = [*inputs, *(exchange.cotangents if direction.backward[0] is not None else ())]
    # Two sets of results are held, and as much again as a call is given while it is drawn.
    free = free_memory(contest.device) * MEMORY_SHARE - bytes_of_call([*results, *results, *given])
    slots = free // max(1, bytes_of_call([*given, *results])) + 1  # the first lies in the trials' arena
    slots = min(slots, MOST_REGIONS // (len(given) + len(results)))
    started = time.monotonic()
    contest.fresh_inputs(contest.seed("how long"))
    drawing_s = max(time.monotonic() - started, 1e-6)
    call_ms = min(series.eager.median_ms, series.candidate.window_ms)  # neither is the candidate's word
    wanted = min(math.ceil(WINDOW_MS / call_ms), math.ceil(DRAWING_S / drawing_s), MOST_CALLS)
    return int(min(max(1, wanted), slots // 2))


def _certified(
    contest: Contest, direction: _Direction, mine: Side, eager: Side, series: Series
) -> tuple[Certificate, TrialResult]:
    """What the windows prove of a direction, and what the audited call came to.

    Raises:
        CandidateStopped: The candidate's claims are below that, also in a second series (rule ``clock``).
        Uncertified: Memory does not do for windows, or they prove nothing.
    """
    try:
        torch.cuda.empty_cache()
        calls = _calls(contest, direction, series)
        if not calls:
            raise Uncertified("the device's memory does not do for calls in a row")
        exchange = contest.setting.exchange
        cotangents = exchange.cotangents if direction.backward[0] is not None else ()
        results = tuple(direction.results.values())
        with contextlib.closing(Slots(exchange, results, cotangents, 2 * calls, contest.device)) as slots:
            proof, found = _proven(contest, direction, (mine, eager), series, slots, calls)
        return proof, _compared(contest, direction, found)
    except (torch.OutOfMemoryError, DeviceMemoryError):  # the judge's own: the verdict stands without
        raise Uncertified("the device's memory does not do for calls in a row") from None
    finally:
        for side in (mine, eager):  # whatever happened: a side that lives gives the slots back
            if not side.worker.is_closed:
                with contextlib.suppress(CandidateStopped, BaselineError):
                    asked(side, DropSlots(), Released)


def _proven(
    contest: Contest, direction: _Direction, sides: tuple[Side, Side], series: Series, slots: Slots, calls: int
) -> tuple[Certificate, Found]:
    """A certificate that the candidate's claims agree with, of the first series or of a longer one."""
    commands = [Loop((), leaves, False) for leaves in direction.leaves]
    likeness = [contest.likeness(name) for name in direction.results]
    claims = series.candidate.median_ms, series.eager.median_ms

    def fresh(seed: int, in_full: bool) -> Call:
        inputs = contest.fresh_inputs(derive_seed(str(seed), "inputs"))
        cotangents = _cotangents(contest, derive_seed(str(seed), "cotangents"), direction)
        if not in_full:
            return Call(inputs, cotangents, seed)
        drawn: Draw | Settled = replace(contest.first, inputs=inputs)
        if contest.setting.kinks is not None:
            drawn = contest.setting.kinks.settle(replace(contest.first, inputs=inputs), derive_seed(str(seed), "draws"))
            inputs = drawn.draw.inputs
        return Call(inputs, cotangents, seed, drawn)

    for least_rounds in (LEAST_ROUNDS, ROUNDS_OF_DOUBT):
        secret = f"{contest.setting.secret}:{direction.name}:{least_rounds}"
        loops = Loops(sides, (commands[0], commands[1]), slots, calls, fresh, likeness, secret)
        found = loops.run(least_rounds)
        proof = certificate(found.candidate, found.eager, found.storing)
        if proof.accepts(*claims):
            return proof, found
    raise CandidateStopped(
        Status.CHEATED,
        f"the worker claims {claims[0]:.4g} ms for a call ({direction.name}), but by the judge's clock {calls} more "
        f"calls took {found.candidate.slope_ms * calls:.4g} ms more: at least {proof.at_least_ms:.4g} ms each",
        rule="clock",
    )


def _compared(contest: Contest, direction: _Direction, found: Found) -> TrialResult:
    """The audited call against the exact reference.

    Raises:
        Uncertified: It is wrong, but the reference has a state that earlier calls may have changed.
    """
    setting, drawn, seed = contest.setting, found.audited.drawn, found.audited.seed
    draw, settled = (drawn.draw, drawn) if isinstance(drawn, Settled) else (drawn, None)
    comparison = Comparison(setting.reference, draw, seed, setting.leaves, setting.precision, contest.trial, settled)
    if direction.backward[0] is None:
        comparison.add_outputs(found.results)
    else:
        # What the judge has drawn, not what lies in the arena, where the candidate can write.
        gradients = dict(zip(setting.leaves, found.results, strict=True))
        comparison.add_gradients("normal", found.audited.cotangents, gradients)
    result = comparison.result()
    if result.failed and any(True for _ in contest.first.model.buffers()):
        raise Uncertified("the reference has buffers, which earlier calls may have changed")
    return result
