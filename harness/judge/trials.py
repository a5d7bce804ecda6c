"""The trials of a case, one after another; what a failed one is due to, and what they come to together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from harness.judge.buffers import warm
from harness.judge.comparison import TrialResult
from harness.judge.draws import Draw, derive_seed, draw, draw_inputs
from harness.judge.explanation import explained, summed_kinks, worst_reports
from harness.judge.further_draws import Source
from harness.judge.handle import CandidateStopped, Clock, WorkerHandle
from harness.judge.kinks import Settled
from harness.judge.operands import CUT_TRIALS, cut, mantissa_bits
from harness.judge.tracing import launches_own_kernels
from harness.judge.trial import THREAD_ORDERS, Setting, run_trial, settle
from harness.records import Finding, Status

#: A relative budget beyond which a tensor says little.
VAGUE_BUDGET = 0.03


def run_trials(
    setting: Setting,
    worker: WorkerHandle,
    clock: Clock,
    source: Source,
    first: Draw,
    seeds: Sequence[int],
    progress: Callable[[str], None],
) -> list[TrialResult]:
    """Run the trials, each under another order of threads, until one fails.

    Args:
        setting: The case's setting.
        worker: The candidate's.
        clock: The seconds that it may use.
        source: Where draws come from.
        first: The first trial's draw.
        seeds: A seed for the draw of each trial.
        progress: Called with a word for what happens now.

    Raises:
        CandidateStopped: The candidate did not get as far as values to compare, or its result depends on the order of
            threads.
        ProblemError: The reference does not run.
    """
    results: list[TrialResult] = []
    bits = mantissa_bits(setting.precision)
    for trial, seed in enumerate(seeds):
        progress(f"trial {trial + 1}/{len(seeds)}")
        drawn = draw(source.problem, source.module, source.args, seed, source.device) if trial else first
        if trial and not all(tensor.is_parameter for tensor in drawn.state):
            others = derive_seed(str(seed), "training")
            warm(drawn, draw_inputs(source.problem, source.module, others, source.device), others)
        if bits is not None and trial in CUT_TRIALS:
            drawn = cut(drawn, bits)
        repeated = _Repeated(setting, worker, clock, settle(setting, drawn, trial), trial, progress)
        result = repeated.run()
        results.append(result)
        if result.failed:
            if setting.faults.is_checked:
                repeated.confirm_suspicions(result)
            elif source.device.type == "cpu":
                result.is_unsteady = repeated.is_unsteady()
            break
    return results


class _Repeated:
    """A trial that can be run again on the same draw.

    Args:
        setting, worker, clock, progress: As for ``run_trials``.
        settled: The trial's draw.
        trial: Its number.
    """

    def __init__(
        self,
        setting: Setting,
        worker: WorkerHandle,
        clock: Clock,
        settled: Draw | Settled,
        trial: int,
        progress: Callable[[str], None],
    ):
        self._setting = setting
        self._worker = worker
        self._clock = clock
        self._settled = settled
        self._trial = trial
        self._progress = progress
        self._order = THREAD_ORDERS[trial % len(THREAD_ORDERS)]

    def run(self, order: str | None = None) -> TrialResult:
        """Run it, in its own order of threads or another."""
        return run_trial(self._setting, self._worker, self._clock, self._settled, self._trial, order or self._order)

    def confirm_suspicions(self, wrong: TrialResult) -> None:
        """Does a wrong result depend on what new memory was filled with? The worker fills it otherwise each time.

        Raises:
            CandidateStopped: The run ended otherwise.
        """
        if self._setting.faults.suspicions and _errors(self.run()) != _errors(wrong):
            self._setting.faults.confirm()

    def is_unsteady(self) -> bool:
        """Whether it passes when it runs again, and not because threads run in another order.

        Raises:
            CandidateStopped: It passes because they do, which is a race (``UNSAFE``), or a run ended otherwise.
        """
        try:
            right = next((order for order in THREAD_ORDERS if order != self._order and self._passes(order)), None)
            if right is None:
                return False
            if self._passes(self._order) or not launches_own_kernels(self._setting, self._worker, self._clock):
                return True
        except CandidateStopped as stop:
            if stop.status is Status.TIMEOUT:
                return False  # the wrong result that is there already says more
            raise
        message = (
            f"the result depends on the order in which threads run: right in {right} order, wrong in {self._order} "
            "order"
        )
        remedy = "synchronise threads that share memory: is a __syncthreads() or __syncwarp() missing?"
        finding = Finding("race", None, None, (), remedy, message)
        raise CandidateStopped(Status.UNSAFE, f"race: {message}; {remedy}", findings=(finding,))

    def _passes(self, order: str) -> bool:
        self._progress(f"trial {self._trial + 1} again, threads in {order} order")
        return not self.run(order).failed


def summary(results: Sequence[TrialResult], notes: Sequence[str]) -> dict[str, Any]:
    """Status, message and the worst report of each tensor over the trials, as fields of a record.

    Args:
        results: The trials, of which only the last may have failed.
        notes: What is to be said beside.
    """
    last = results[-1]
    told = list(notes)
    kinks = summed_kinks(results)
    if kinks.get("remaining"):
        told.append(f"note: {kinks['remaining']} elements within rounding of a branch remained (see `kinks`)")
    status = Status.PASSED
    if last.failed:
        wrong_output = any(not report.ok for report in last.outputs)
        status = Status.WRONG_OUTPUT if wrong_output else Status.WRONG_GRADIENT
        told = [*(explained(report, last) for report in last.failed), *told]
        if last.is_unsteady:
            told.append(
                "note: the same trial passed when it ran again: what is returned changes from call to call (is "
                "something left over from an earlier call, or not written in every call?)"
            )
        if last.again:
            told.append(
                "note: this is the trial in which forward runs once more, on other values, before its result is "
                "read: if only that fails, a result or what backward needs lies in memory that calls share"
            )
    return {
        "status": status,
        "message": "\n".join(told),
        "outputs": worst_reports([result.outputs for result in results]),
        "gradients": worst_reports([result.gradients for result in results]),
        "trials": len(results),
        "reference_pieces": last.pieces,
        "kinks": kinks,
        **({"digests": _digests(results)} if last.digests else {}),  # neither a further draw nor a timed call has any
    }


def _digests(results: Sequence[TrialResult]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(result.digests[name] for result in results) for name in results[-1].digests}


def budgets(results: Sequence[TrialResult]) -> dict[str, float | None]:
    """The largest relative L2 budget of each tensor; None for one that is little but rounding, or was zero."""
    reports = [report for result in results for report in (*result.outputs, *result.gradients)]
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(report.name for report in reports):
        own = [report for report in reports if report.name == name]
        budget = max(report.l2_budget or 0.0 for report in own)
        found[name] = None if budget > VAGUE_BUDGET or any(report.note for report in own) else budget
    return found


def _errors(result: TrialResult) -> list[tuple[str, float | None, float | None, float | None]]:
    return [(one.name, one.l2_error, one.max_error, one.received) for one in (*result.outputs, *result.gradients)]
