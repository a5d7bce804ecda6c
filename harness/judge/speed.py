"""Times a candidate that passed: its latencies beside eager's, and what bounds them by the judge's own clock."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from harness.judge.baseline import Baseline
from harness.judge.comparison import Comparison, TrialResult, output_names
from harness.judge.draws import Draw, derive_seed, draw_inputs
from harness.judge.fitting import free_memory
from harness.judge.handle import CandidateStopped, Clock, WorkerHandle
from harness.judge.kinks import Settled
from harness.judge.loops import LEAST_ROUNDS, Audited, Loops
from harness.judge.series import Series, Side, asked, measure, summary
from harness.judge.slots import Slots, bytes_of_call
from harness.judge.trial import Setting, backward_command, forward_command, forward_seed, settle
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
MEMORY_SHARE = 0.8
#: Rounds of the second series, where the first left a claim outside its bound: noise goes away, a lie stays.
ROUNDS_OF_DOUBT = 7


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
        vague: Outputs and gradients that are little but rounding, by their names in reports: eager's and an honest
            candidate's have nothing in common.
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
    vague: frozenset[str]

    def seed(self, *parts: object) -> int:
        """A seed for a purpose."""
        return derive_seed(self.setting.secret, "timing", *parts)

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


def timed(
    contest: Contest, worker: WorkerHandle, clock: Clock, baseline: Baseline
) -> tuple[dict[str, Any], list[TrialResult]]:
    """Time the candidate against eager, and certify both.

    Returns:
        The record's fields that this fills, and what the audited calls came to, one of each certified direction.

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
    series: list[tuple[str, Series]] = []
    certified: dict[str, Any] = {}
    audits: list[TrialResult] = []
    try:
        eager = baseline.side(contest.problem, contest.constants, construct, setting.exchange.descriptor, of_eager)
        mine = Side(worker, clock)
        asked(mine, command, Outputs)
        for trial, direction in enumerate(_directions(setting, own), contest.trial):
            series.append((direction.name, _series(contest, direction, mine, eager)))
            audited, drawn = _audited(
                contest, trial
            )  # nothing of it is shared: a call that comes twice gives itself away
            found = _certified(contest, direction, mine, eager, series[-1][1], audited)
            if found is not None:
                certified[direction.name] = asdict(found[0])
                audits.append(_compared(contest, direction, trial, drawn, found[1]))
                if audits[-1].failed:
                    break
            del audited, drawn, found
    finally:
        baseline.release()
    fields = {**summary(series), "certified": certified}
    return fields, audits


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

    def renew(pair: int) -> None:
        exchange.write_inputs(contest.fresh_inputs(contest.seed(direction.name, pair)))

    for region, cotangent in zip(exchange.cotangents, _cotangents(contest), strict=True):
        exchange.write(region, cotangent)
    commands = (Time(direction.backward[0]), Time(direction.backward[1]))
    return measure((mine, eager), commands, renew, contest.device, random.Random(contest.seed(direction.name)))


def _cotangents(contest: Contest) -> list[torch.Tensor]:
    """What all timed calls differentiate with: the same values at every call of this."""
    generator = torch.Generator(contest.device).manual_seed(contest.seed("cotangents"))
    return [
        torch.randn(region.shape, generator=generator, device=contest.device).to(dtype_named(region.dtype))
        for region in contest.setting.exchange.cotangents
    ]


def _audited(contest: Contest, trial: int) -> tuple[Audited, Draw | Settled]:
    """A call that is to be compared in full, its inputs kept from kinks where the reference has them."""
    inputs = contest.fresh_inputs(contest.seed("audited", trial))
    drawn = settle(contest.setting, replace(contest.first, inputs=inputs), trial)
    settled = drawn.draw if isinstance(drawn, Settled) else drawn
    return Audited(settled.inputs, forward_seed(contest.setting, trial)), drawn


def _calls(contest: Contest, direction: _Direction, series: Series) -> int:
    """Calls in a short window: enough for the clock, and as many as fit; 0 where not even one does."""
    exchange = contest.setting.exchange
    inputs, results = bytes_of_call(exchange.inputs, tuple(direction.results.values()))
    free = free_memory(contest.device) * MEMORY_SHARE - results  # those of one call are kept
    regions = len(exchange.inputs) + len(direction.results)
    fitting = min(free // max(1, 2 * (inputs + results)), MOST_REGIONS // (2 * regions))
    call_ms = min(series.eager.median_ms, series.candidate.window_ms)  # neither is the candidate's word
    return int(min(MOST_CALLS, max(1, math.ceil(WINDOW_MS / call_ms)), fitting))


def _certified(
    contest: Contest, direction: _Direction, mine: Side, eager: Side, series: Series, audited: Audited
) -> tuple[Certificate, list[torch.Tensor]] | None:
    """What the windows prove of a direction, and the audited results; None where memory does not do for them.

    Raises:
        CandidateStopped: The candidate's claims are below that, also in a second series (rule ``clock``).
    """
    torch.cuda.empty_cache()
    calls = _calls(contest, direction, series)
    if not calls:
        return None
    try:
        return _proven(contest, direction, mine, eager, series, audited, calls)
    except (torch.OutOfMemoryError, DeviceMemoryError):  # the judge's own: the verdict stands without
        for side in (mine, eager):
            asked(side, DropSlots(), Released)
        return None


def _proven(
    contest: Contest,
    direction: _Direction,
    mine: Side,
    eager: Side,
    series: Series,
    audited: Audited,
    calls: int,
) -> tuple[Certificate, list[torch.Tensor]]:
    """The same with so many calls in a short window."""
    exchange = contest.setting.exchange
    cotangents = exchange.cotangents if direction.backward[0] is not None else ()
    commands = [Loop((), leaves, cotangents, False) for leaves in direction.leaves]
    results = tuple(direction.results.values())
    telling = [name not in contest.vague for name in direction.results]
    claims = series.candidate.median_ms, series.eager.median_ms
    with contextlib.closing(Slots(exchange.inputs, results, 2 * calls, contest.device)) as slots:
        for least_rounds in (LEAST_ROUNDS, ROUNDS_OF_DOUBT):
            secret = f"{contest.setting.secret}:{direction.name}:{least_rounds}"
            loops = Loops(
                (mine, eager), (commands[0], commands[1]), slots, calls, contest.fresh_inputs, audited, telling, secret
            )
            found = loops.run(least_rounds)
            proof = certificate(found.candidate, found.eager, found.storing)
            if proof.accepts(*claims):
                return proof, found.results
    raise CandidateStopped(
        Status.CHEATED,
        f"the worker claims {claims[0]:.4g} ms for a call ({direction.name}), but by the judge's clock {calls} more "
        f"calls took {found.candidate.slope_ms * calls:.4g} ms more: at least {proof.at_least_ms:.4g} ms each",
        rule="clock",
    )


def _compared(
    contest: Contest, direction: _Direction, trial: int, drawn: Draw | Settled, results: list[torch.Tensor]
) -> TrialResult:
    """An audited call against the exact reference."""
    setting = contest.setting
    draw, settled = (drawn.draw, drawn) if isinstance(drawn, Settled) else (drawn, None)
    seed = forward_seed(setting, trial)
    comparison = Comparison(setting.reference, draw, seed, setting.leaves, setting.precision, trial, settled)
    if direction.backward[0] is None:
        comparison.add_outputs(results)
    else:
        # The cotangents are made again, not read from the arena, where the candidate can write.
        gradients = dict(zip(setting.leaves, results, strict=True))
        comparison.add_gradients("normal", _cotangents(contest), gradients)
    return comparison.result()
