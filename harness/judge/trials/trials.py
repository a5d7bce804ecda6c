"""Runs the trials of a case one after another, finds the cause of a failure, and sums them up."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from harness.judge.case_context import ORDINARY, CaseContext
from harness.judge.compare.explanation import explained, summed_kinks, worst_reports
from harness.judge.compare.trial_result import ProvesNothing, TrialResult
from harness.judge.evidence.tracing import launches_own_kernels
from harness.judge.inputs.buffers import warm
from harness.judge.inputs.copying import holds_functions
from harness.judge.inputs.draws import Draw, derive_seed, draw
from harness.judge.inputs.situations import FIRST, OF_COPY, TWICE, Usage, usage_of
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.reference.kinks import Settled
from harness.judge.reference.reduced_precision import CUT_TRIALS, cut, mantissa_bits
from harness.judge.trials.further_draws import DrawSource
from harness.judge.trials.trial import THREAD_ORDERS, run_trial, settle
from harness.records.record import Finding, Status
from harness.records.rules import INPUT_MUTATION
from harness.wire.commands import EVALUATION, NON_LEAF, SAME_INSTANCE

#: Limits on the calls in a row before each of the two results on the candidate's own draws. With few
#: elements a call costs next to nothing, so the judge makes the most, or as many as take these seconds.
#: Otherwise it makes as many as take a small share of the evaluation.
LEAST_CALLS, MOST_CALLS = 4, 64
FEW_ELEMENTS, LEAST_CALLS_OF_FEW, CALLS_OF_FEW_S = 1 << 14, 16, 3.0
CALLS_SHARE = 1 / 80
#: Calls on other values before the judge reads a result. They overwrite results kept in a ring of so
#: many buffers. Where tensors have few elements, their number is random in a range; elsewhere the
#: same instance is called this often, and another one once.
FEWEST_ASIDE, MOST_ASIDE = 8, 16
ASIDE_OF_MANY_ELEMENTS = 2
#: A trial calls forward and backward three times each; the two take about the same time.
CALLS_OF_A_TRIAL = 6
#: Draws of a trial, one after another, in each of which an output is zero everywhere, before the judge gives up.
MOST_DRAWS = 8
#: The trial that begins behind several steps of training, and their number.
TRIAL_OF_MORE_STEPS, MORE_STEPS = 2, 3
#: Above this relative budget a comparison says little about a tensor.
VAGUE_BUDGET = 0.03


@dataclass(frozen=True)
class Plan:
    """Everything needed to run the trials of a case.

    Attributes:
        context: The case's context, for the draws that all candidates of a batch share.
        own: The same for the draws that only this candidate gets.
        source: The source of draws.
        first: The first trial's draw.
        seeds: A seed for the draw of each trial. The last is the candidate's own.
        own_seed: A seed for the candidate's own draws without gradients.
        is_brief: Whether a trial calls the candidate in the ordinary way only, because a call takes
            long.
    """

    context: CaseContext
    own: CaseContext
    source: DrawSource
    first: Draw
    seeds: Sequence[int]
    own_seed: int
    is_brief: bool = False

    def draw(self, trial: int, attempt: int = 0) -> Draw:
        """Make a trial's draw; the two numbers after the last are for calls without gradients.

        A further attempt gives another draw.
        """
        if trial == 0 and len(self.seeds) > 1 and not attempt:
            return self.first
        seeds = (*self.seeds, self.own_seed, derive_seed(str(self.own_seed), "serving"))
        source, seed = self.source, derive_seed(str(seeds[trial]), "again", attempt) if attempt else seeds[trial]
        drawn = draw(source.problem, source.module, source.args, seed, source.device)
        if not all(tensor.is_parameter for tensor in drawn.state):
            others = derive_seed(str(seed), "training")
            steps = MORE_STEPS if trial == TRIAL_OF_MORE_STEPS else 1
            warm(drawn, source.fresh_inputs(others), others, steps)
        bits = mantissa_bits(self.context.precision)
        return cut(drawn, bits) if bits is not None and trial in CUT_TRIALS else drawn

    def usage(self, trial: int) -> Usage:
        """Return how an ordinary trial calls the candidate."""
        if self.is_brief:
            return ORDINARY
        context, names = self.context, set(self.first.input_names().values())
        inputs = [name for name in context.leaves if name in names]
        parameters = [name for name in context.leaves if name not in names]
        usage = usage_of(trial, inputs, parameters, context.secret).without(context.unsupported)
        usage = replace(usage, alone=self.alone(trial))
        return replace(usage, aside_calls=self.aside_calls(trial, usage.aside)) if usage.aside else usage

    def alone(self, trial: int) -> str:
        """Return the path of the only output that has a cotangent in a trial; empty if all have one.

        Trials that need all gradients come first.
        """
        outputs = self.context.differentiable
        if len(outputs) < 2:
            return ""
        chosen = random.Random(derive_seed(self.context.secret, "alone")).sample(outputs, len(outputs))
        turns = dict.fromkeys((2, len(self.seeds) - 1, 1, 3))
        return dict(zip(turns, chosen, strict=False)).get(trial, "")

    def aside_calls(self, trial: int, which: str) -> int:
        """Return how often to call the instance aside in a trial."""
        if self.is_small:
            secret = derive_seed(self.own.secret, "aside", trial)
            return random.Random(secret).randint(FEWEST_ASIDE, MOST_ASIDE)
        return ASIDE_OF_MANY_ELEMENTS if which == SAME_INSTANCE else 1

    @property
    def is_small(self) -> bool:
        """True if the tensors have so few elements that calls cost next to nothing."""
        tensors = [value for value in self.first.inputs if isinstance(value, torch.Tensor)]
        elements = sum(one.numel() for one in (*tensors, *self.first.model.parameters()))
        return elements + sum(math.prod(region.shape) for region in self.context.exchange.outputs) <= FEW_ELEMENTS


def run_trials(plan: Plan, worker: WorkerHandle, clock: Clock, progress: Callable[[str], None]) -> list[TrialResult]:
    """Run the trials, each under another order of threads, until one fails.

    All but the last use draws that every candidate of a batch gets. The last results are on draws
    of the candidate's own: one without gradients, one as a server calls a model, and one with
    gradients. Nothing that another candidate left behind can answer those. The first and the third
    are results of the last of several calls in a row. Those without gradients are no trials by
    themselves; they merge into the last trial.

    Args:
        plan: The trials to run.
        worker: The candidate's worker.
        clock: The seconds that the candidate may use.
        progress: Called with a description of each step.

    Raises:
        CandidateStopped: The candidate failed before there were values to compare, or its result
            depends on the order of threads.
        ProblemError: The reference does not run.
    """

    def judged(context: CaseContext, trial: int, usage: Usage) -> TrialResult:
        for attempt in range(MOST_DRAWS):
            drawn = settle(context, plan.draw(trial, attempt), trial)
            repeated = _Repeated(context, worker, clock, drawn, trial=trial, progress=progress, usage=usage)
            try:
                return repeated.judged()
            except ProvesNothing as error:
                nothing = error.with_traceback(None)  # which holds graphs and gradients
        raise nothing

    results: list[TrialResult] = []
    last, started = len(plan.seeds) - 1, time.monotonic()
    for trial in range(last):
        progress(f"trial {trial + 1}/{last + 1}")
        results.append(judged(plan.context, trial, plan.usage(trial)))
        if results[-1].failed:
            return results
    for trial, usage in _on_own_draws(plan, clock, last, time.monotonic() - started):
        progress(f"trial {last + 1}/{last + 1}")
        results.append(judged(plan.own, trial, usage))
        if results[-1].failed:
            return results
    final = results[-1]
    final.outputs = list(worst_reports(report for result in results[last:] for report in result.outputs))
    return [*results[:last], final]


def _on_own_draws(plan: Plan, clock: Clock, last: int, elapsed_s: float) -> list[tuple[int, Usage]]:
    """Return the draws that only this candidate gets, by number, and how each is used.

    Args:
        plan: The trials.
        clock: The time that the candidate has used so far.
        last: Number of the last trial.
        elapsed_s: Duration of the trials before it.
    """
    has_leaves = bool(plan.own.leaves)
    if plan.is_brief:
        return [(last, replace(ORDINARY, is_recorded=not has_leaves))]
    calls = _calls_in_a_row(plan, clock, last, elapsed_s)
    aside_calls = plan.aside_calls(last + 1, SAME_INSTANCE)
    without = Usage(aside=SAME_INSTANCE, aside_calls=aside_calls, calls=calls, without_gradients=True, is_recorded=True)
    copies = () if holds_functions(plan.first.model) else OF_COPY
    serving = Usage(without_gradients=True, ways=(EVALUATION, *copies))
    # Trial 3 has inputs that are no leaves, too, but parameters that need no gradient.
    ways = (NON_LEAF, TWICE) if has_leaves else ()
    training = Usage(calls=calls, ways=ways, alone=plan.alone(last), is_recorded=not has_leaves)
    # Without leaves the last trial itself runs without gradients.
    usages = [*([(last + 1, without)] if has_leaves else []), (last + 2, serving), (last, training)]
    return [(trial, usage.without(plan.own.unsupported)) for trial, usage in usages]


def _calls_in_a_row(plan: Plan, clock: Clock, trials: int, elapsed_s: float) -> int:
    """Return how many calls to make before reading a result on one of the candidate's own draws.

    Args:
        plan: The trials.
        clock: The time that the candidate has used so far.
        trials: Number of trials that it has run.
        elapsed_s: Duration of these trials.
    """
    if INPUT_MUTATION in plan.context.exchange.integrity.changed:
        return 1  # A call may find other inputs than the one before it.
    least, seconds = (LEAST_CALLS_OF_FEW, CALLS_OF_FEW_S) if plan.is_small else (LEAST_CALLS, CALLS_SHARE * elapsed_s)
    call_s = clock.run_s / max(1, trials * CALLS_OF_A_TRIAL)
    return max(least, min(MOST_CALLS, int(seconds / max(call_s, 1e-6))))


class _Repeated:
    """A trial that can run again on the same draw.

    Args:
        context: The case's context.
        worker: The candidate's worker.
        clock: The seconds that the candidate may use.
        settled: The trial's draw.
        trial: The trial's number.
        progress: Called with a description of each step.
        usage: How to call the candidate.
    """

    def __init__(
        self,
        context: CaseContext,
        worker: WorkerHandle,
        clock: Clock,
        settled: Draw | Settled,
        *,
        trial: int,
        progress: Callable[[str], None],
        usage: Usage,
    ):
        self._context = context
        self._worker = worker
        self._clock = clock
        self._settled = settled
        self._trial = trial
        self._progress = progress
        self._usage = replace(usage, fill=trial)
        self._order = THREAD_ORDERS[trial % len(THREAD_ORDERS)]

    def judged(self) -> TrialResult:
        """Run the trial; if it fails, find out whether chance decides the result.

        Raises:
            CandidateStopped: The candidate failed before there were values to compare, or its
                result depends on the order of threads.
        """
        try:
            result = self.run()
        except CandidateStopped as stop:
            notes = self._usage.notes_on({FIRST})
            stop.message = "\n".join((stop.message, *(f"note: {words}" for words in notes)))
            raise
        if result.failed:
            if self._context.faults.is_checked:
                self.confirm_suspicions(result)
            elif self._context.exchange.arena.device.type == "cpu":
                result.is_unsteady = self.is_unsteady()
        return result

    def run(self, order: str | None = None, fill: int | None = None) -> TrialResult:
        """Run the trial in its own order of threads or another, and with its own fill or another."""
        return run_trial(
            self._context,
            self._worker,
            self._clock,
            self._settled,
            self._trial,
            thread_order=order or self._order,
            normal_only=self._usage.without_gradients,
            usage=self._usage if fill is None else replace(self._usage, fill=fill),
        )

    def confirm_suspicions(self, wrong: TrialResult) -> None:
        """Check whether a wrong result depends on the contents of memory that the candidate has not written.

        Raises:
            CandidateStopped: The repeated run ended otherwise.
        """
        if self._context.faults.suspicions and _errors(self.run(fill=self._trial + 1)) != _errors(wrong):
            self._context.faults.confirm()

    def is_unsteady(self) -> bool:
        """Return whether the trial passes when repeated, for another reason than the thread order.

        Raises:
            CandidateStopped: The thread order decides, which is a race (``UNSAFE``), or a run ended
                otherwise.
        """
        try:
            right = next((order for order in THREAD_ORDERS if order != self._order and self._passes(order)), None)
            if right is None:  # the contents of memory may decide
                return not self.run(fill=self._trial + 1).failed
            if self._passes(self._order) or not launches_own_kernels(self._context, self._worker, self._clock):
                return True
        except CandidateStopped as stop:
            if stop.status is Status.TIMEOUT:
                return False  # The wrong result found before says more than the timeout.
            raise
        message = (
            f"the result depends on the order of the threads: right in {right} order, wrong in {self._order} order"
        )
        remedy = "synchronise threads that share memory: is a __syncthreads() or __syncwarp() missing?"
        finding = Finding("race", kernel=None, line=None, accesses=(), remedy=remedy, message=message)
        raise CandidateStopped(Status.UNSAFE, f"race: {message}; {remedy}", findings=(finding,))

    def _passes(self, order: str) -> bool:
        self._progress(f"trial {self._trial + 1} again, threads in {order} order")
        return not self.run(order).failed


def summary(results: Sequence[TrialResult], notes: Sequence[str]) -> dict[str, Any]:
    """Return status, message and each tensor's worst report over the trials, as record fields.

    Args:
        results: The trials, of which only the last may have failed.
        notes: Further lines for the message.
    """
    last = results[-1]
    told = list(notes)
    kinks = summed_kinks(results)
    if kinks.get("remaining"):
        told.append(f"note: {kinks['remaining']} elements remained within rounding of a branch (see `kinks`)")
    status = Status.PASSED
    if last.failed:
        wrong_output = any(not report.ok for report in last.outputs)
        status = Status.WRONG_OUTPUT if wrong_output else Status.WRONG_GRADIENT
        told = [*(explained(report, last) for report in last.failed), *told]
        if last.is_unsteady:
            told.append(
                "note: the same trial passed when it ran again, so the result changes from call to call "
                "(does it depend on data left from an earlier call, or does a call leave part of it "
                "unwritten?)"
            )
        cotangents = {report.cotangent for report in last.failed if report.cotangent}
        told += [f"note: {words}" for words in last.usage.notes_on(cotangents)]
    return {
        "status": status,
        "message": "\n".join(told),
        "outputs": worst_reports(report for result in results for report in result.outputs),
        "gradients": worst_reports(report for result in results for report in result.gradients),
        "trials": len(results),
        "reference_pieces": last.pieces,
        "kinks": kinks,
        # Further draws and timed calls have no digests.
        **({"digests": _digests(results)} if last.digests else {}),
    }


def _digests(results: Sequence[TrialResult]) -> dict[str, tuple[str, ...]]:
    names = dict.fromkeys(name for result in results for name in result.digests)
    return {name: tuple(result.digests[name] for result in results if name in result.digests) for name in names}


def budgets(results: Sequence[TrialResult]) -> dict[str, float | None]:
    """Return the largest relative L2 budget of each tensor.

    It is None for a tensor that is little but rounding, or whose report has a note, such as a zero
    gradient.
    """
    reports = [report for result in results for report in (*result.outputs, *result.gradients)]
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(report.name for report in reports):
        own = [report for report in reports if report.name == name]
        budget = max(report.l2_budget or 0.0 for report in own)
        found[name] = None if budget > VAGUE_BUDGET or any(report.note for report in own) else budget
    return found


def _errors(result: TrialResult) -> list[tuple[str, float | None, float | None, float | None]]:
    return [(one.name, one.l2_error, one.max_error, one.received) for one in (*result.outputs, *result.gradients)]
