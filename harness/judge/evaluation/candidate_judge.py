"""Judges one candidate case by case, from a worker's start to a record."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from harness.errors import HarnessError, ProblemError
from harness.judge.case_context import CaseContext
from harness.judge.compare.trial_result import TrialResult
from harness.judge.evaluation.blank_records import TRIALS, blank_record
from harness.judge.evaluation.build_logs import kept_log, log_words
from harness.judge.evaluation.builder import Refused, differs, encoded
from harness.judge.evaluation.candidate_worker import CandidateWorker, with_own_constants
from harness.judge.evaluation.case_result import CaseResult
from harness.judge.evaluation.drawn_case import DrawnCase, TrialSetup, draw_case, trial_setup
from harness.judge.evaluation.interpretation import Interpretation
from harness.judge.evidence.gpu_build import GpuBuild, compiled_for_gpu
from harness.judge.evidence.tracing import traced
from harness.judge.inputs.draws import draw
from harness.judge.inputs.memory_fit import shortage
from harness.judge.integrity import Integrity
from harness.judge.policy import Policy, Surroundings, new_secret
from harness.judge.process.candidate_stopped import CandidateStopped, UnmatchedState
from harness.judge.process.faults import Faults
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.process.workers import Workers
from harness.judge.reference.reference_cache import ReferenceCache
from harness.judge.timing.device_conditions import Conditions
from harness.judge.timing.paired_timing import BaselineError
from harness.judge.timing.rivals import Baseline
from harness.judge.timing.speed import SpeedTimer
from harness.judge.timing.stopwatch import Stopwatch
from harness.judge.timing.timing_target import TimingTarget
from harness.judge.trials import kernelbench
from harness.judge.trials.further_draws import Further, further_trials
from harness.judge.trials.repeats import spread
from harness.judge.trials.robustness import robustness_checks
from harness.judge.trials.trials import budgets, run_trials, summary
from harness.judge.validation.screening import Screen
from harness.project.solutions import Candidate
from harness.records.record import ERROR, EvaluationRecord, Finding, Status
from harness.scanning.scan import scan
from harness.system.text import shortened
from harness.wire.cuda_memory import DeviceMemoryError

#: The judge truncates a worker's messages on arrival, because names and shapes from it go into
#: messages too.
MAX_MESSAGE_CHARACTERS = 12_000
#: Statuses that result from a comparison with the reference.
COMPARED = frozenset({Status.PASSED, Status.WRONG_OUTPUT, Status.WRONG_GRADIENT, Status.NO_GRADIENT})
#: Statuses after which the worker still answers.
LEFT_ALIVE = COMPARED | {
    *(Status.BUILD_ERROR, Status.LOAD_ERROR, Status.RUNTIME_ERROR, Status.UNSAFE, Status.UNSUPPORTED),
}


class CandidateJudge:
    """Judges one candidate; one worker serves all its cases, unless it dies.

    Args:
        candidate: The solution and its problem.
        policy: How to judge.
        surroundings: The machine.
        workers: The pool of workers.
        progress: Called with the name of each step.
        baseline: The worker of eager PyTorch for timing; None if speed is not measured.
        shared: Results of references that all candidates of a batch share.
        refused: The compiler's earlier refusals of this solution (see ``builder``).
        quiet: A context entered during timing. It stops the harness's other work on processors.
        has_next: True if another candidate follows, whose worker can start in the meantime.
    """

    def __init__(
        self,
        candidate: Candidate,
        policy: Policy,
        surroundings: Surroundings,
        workers: Workers,
        *,
        progress: Callable[[str], None] = lambda _: None,
        baseline: Baseline | None = None,
        shared: ReferenceCache | None = None,
        refused: Refused = MappingProxyType({}),
        quiet: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
        has_next: bool = False,
    ):
        self._has_next = has_next
        self._shared = ReferenceCache() if shared is None else shared
        self._screen = Screen(self._shared.unfit, surroundings.home, torch.device(policy.device), progress)
        self._quiet = quiet
        self._device = torch.device(policy.device)
        self._baseline = baseline
        self._candidate = candidate
        self._policy = policy
        self._surroundings = surroundings
        self._workers = workers
        self._progress = progress
        self._worker = CandidateWorker(candidate, policy, surroundings, workers, refused=refused, progress=progress)
        self._is_upset = self._was_upset = False
        self._stages = Stopwatch()
        self._faults = Faults()
        self._integrity = Integrity(policy.rules)
        self._scan: Future[tuple[Finding, ...]] | None = None
        self._gpu_build: GpuBuild | None = None
        self._build_s = 0.0
        self._own_seed = policy.own_seed or new_secret()
        self._interpretation = Interpretation(candidate.solution.source, policy.device)

    @property
    def may_have_harmed_the_device(self) -> bool:
        """True if the last evaluation ended in a way that a device fault can cause."""
        return self._was_upset

    def close(self) -> None:
        """Ends the worker."""
        if self._worker.handle is not None:
            self._worker.close()
            self._is_upset = False

    def evaluate(self, case: str, constants: dict[str, Any], trials: int = TRIALS) -> EvaluationRecord:
        """Judges the candidate on a case.

        Args:
            case: The case's name.
            constants: The problem's constants that the case replaces.
            trials: Number of trials; fewer than ``TRIALS`` if the candidate has passed before.

        Raises:
            ProblemError: The problem is malformed or its reference does not run.
        """
        started = time.monotonic()
        clock = Clock(*self._policy.granted, build_s=self._build_s)
        build_before = self._build_s
        policy = self._policy if trials == TRIALS else replace(self._policy, trials=trials)
        blank = blank_record(self._candidate, policy, self._surroundings.environment, case, constants)
        record = replace(blank, own_seed=self._own_seed)
        trials = self._interpretation.trials(trials)
        self._stages = Stopwatch()
        self._faults = Faults(bool(self._policy.check))
        self._integrity = Integrity(self._policy.rules)
        self._kernelbench: dict[str, Any] = {}
        try:
            record = self._judge(case, constants, trials, clock).written(record)
        except CandidateStopped as stop:
            record = self._stopped(record, stop)
        except (torch.OutOfMemoryError, DeviceMemoryError) as error:
            message = shortage(self._candidate.problem, case, constants, self._device, error)
            record = replace(record, status=Status.OUT_OF_MEMORY, message=message)
        except ProblemError:
            raise
        except HarnessError as error:
            record = replace(record, status=Status.HARNESS_ERROR, message=str(error))
        record = with_own_constants(record, self._candidate.solution.source)
        if self._policy.check:
            record = self._with_gpu_build(record, built=clock.build_s > build_before)
        self._build_s = clock.build_s
        self._worker.keep()
        worker = self._worker.handle
        log = worker.said() if worker is not None else ""
        confinement = worker.confinement if worker is not None else {}
        self._was_upset = record.status is not Status.PASSED or self._is_upset
        if self._was_upset:
            self.close()
        if record.status in COMPARED and trials == TRIALS:
            self._stages.enter("fitness")
            record = replace(record, unfit=self._screen.reasons(self._candidate.problem, record))
        record = replace(
            record,
            build_s=clock.build_s - build_before,
            run_s=clock.run_s,
            total_s=time.monotonic() - started,
            stages_s=self._stages.leave(),
            kernelbench=kernelbench.recorded(self._kernelbench, record) if self._policy.preset else {},
            log=log,
            confinement=confinement,
            findings=(*record.findings, *self._integrity.found, *self._scanned()),
        )
        return self._interpretation.told(self._integrity.decided(record))

    def _with_gpu_build(self, record: EvaluationRecord, built: bool) -> EvaluationRecord:
        """Adds nvcc's result to a record: ``BUILD_ERROR`` if it passed and nvcc refuses the sources.

        Args:
            record: The case's record from the emulator.
            built: True if the case built something. Otherwise the result of earlier cases still holds.
        """
        worker = self._worker.handle
        if worker is not None and record.status in LEFT_ALIVE and (built or self._gpu_build is None):
            self._stages.enter("nvcc")
            self._progress(f"compiling for {self._policy.check}")
            evidence_clock = Clock(*self._policy.granted)
            try:
                self._gpu_build = compiled_for_gpu(worker, self._policy.check, evidence_clock)
            except CandidateStopped as stop:
                return self._stopped(record, stop)
            self._is_upset = self._is_upset or self._gpu_build.is_over
        if self._gpu_build is None:
            return record
        finding, log = self._gpu_build.finding, self._gpu_build.log
        record = replace(record, compiled=self._gpu_build.compilation)
        if finding is None:
            return record
        record = replace(record, findings=(*record.findings, finding))
        if record.build_log is None and log:
            record = replace(record, build_log=kept_log(self._surroundings.log_folder, self._candidate.solution, log))
        if record.status is not Status.PASSED or finding.level != ERROR:
            return record
        error = self._gpu_build.compilation.error
        message = (
            "the results are right on the emulator, but nvcc does not compile this: "
            f"{error}{log_words(record.build_log)}"
        )
        told = "\n".join(filter(None, (message, record.message)))
        return replace(record, status=Status.BUILD_ERROR, message=told)

    def _started_scan(self) -> Future[tuple[Finding, ...]]:
        """Starts the static scan, which runs while the judge waits; once for all cases."""
        if self._scan is None:
            with_one = ThreadPoolExecutor(1)
            self._scan = with_one.submit(scan, self._candidate.solution.source)
            with_one.shutdown(wait=False)
        return self._scan

    def _scanned(self) -> tuple[Finding, ...]:
        """Returns the findings of the static scan."""
        return self._started_scan().result()

    def _judge(self, case: str, constants: dict[str, Any], trials: int, clock: Clock) -> CaseResult:
        """Judges the candidate on a case and, on a GPU, times it.

        Raises:
            CandidateStopped: The candidate failed before its results could be judged.
            ProblemError: The problem is malformed or its reference does not run.
        """
        problem = self._candidate.problem
        self._interpretation.check_packages()
        self._worker.start_ahead()  # it gets ready while the judge draws
        conditions = self._conditions(constants)
        self._stages.enter("inputs")
        drawn = draw_case(problem, self._policy, case, constants, shared=self._shared, integrity=self._integrity)
        exchange = drawn.exchange
        with contextlib.closing(exchange), contextlib.ExitStack() as at_end:
            at_end.callback(torch.cuda.empty_cache)  # the next candidate's worker needs that memory
            at_end.callback(self._shared.trim)
            at_end.callback(drawn.reference.forget)
            self._stages.enter("worker")
            self._started_scan()  # not earlier: the two would slow each other
            worker = self._worker.ready(clock, self._faults)
            construct = self._worker.construct_command(exchange, constants, drawn.first)
            setup = partial(
                trial_setup,
                drawn,
                self._policy,
                own_seed=self._own_seed,
                trials=trials,
                faults=self._faults,
                construct=construct,
                worker=worker,
                is_brief=self._interpretation.is_interpreted,
            )
            try:
                names = self._worker.construct(exchange, construct, drawn.first.state, clock, self._faults)
                matched = setup(names=names)
            except UnmatchedState:
                with contextlib.suppress(CandidateStopped):
                    self._ask_kernelbench(setup(names=None))
                raise
            return self._result(drawn, matched, constants, clock, conditions)

    def _ask_kernelbench(self, setup: TrialSetup) -> None:
        if not self._policy.preset:
            return
        self._stages.enter("kernelbench")
        self._kernelbench = kernelbench.outputs_verdict(setup.context, setup.worker, self._policy.granted, setup.source)

    def _conditions(self, constants: dict[str, Any]) -> Conditions | None:
        """Starts to record the GPU's state; None if speed is not measured."""
        if self._baseline is None:
            return None
        around = self._surroundings
        return Conditions(
            problem=self._candidate.problem,
            constants=constants,
            device=self._device,
            ceilings=around.ceilings,
            folder=around.work_folder,
            own_pids=WorkerHandle.living,
        )

    def _result(
        self,
        drawn: DrawnCase,
        setup: TrialSetup,
        constants: dict[str, Any],
        clock: Clock,
        conditions: Conditions | None,
    ) -> CaseResult:
        """Runs the trials of a case and, if the candidate passes, all later stages."""
        worker, trials = setup.worker, len(setup.seeds)
        self._ask_kernelbench(setup)  # first, since the judge's own trials end with a failure
        self._stages.enter("trials")
        if self._has_next:
            self._workers.start_next()
        results = run_trials(setup.plan(drawn.first), worker, clock, self._progress)
        result = CaseResult.of(summary(results, self._notes))
        result.add(drawn.precision_fields(results))
        further = Further({}, ())
        if result.has_passed and drawn.problem.draws and trials == TRIALS and not self._faults.kept:
            self._stages.enter("further draws")
            further = further_trials(
                context=setup.context,
                worker=worker,
                clock=Clock(*self._policy.granted),
                source=setup.source,
                first_trial=trials,
                progress=self._progress,
            )
        if result.has_passed and conditions is not None:
            target = self._target(drawn, setup, constants, budgets(results), conditions)
            self._add_speed(result, target, results, worker, clock)
        elif result.has_passed:
            self._stages.enter("kernels")
            result.add(self._evidence(setup.context, worker, {}))
        result.shared_draws = drawn.known.shared
        result.status, result.message = self._faults.verdict(result.status, result.message)
        result.further_draws = further.ends
        result.findings = (*self._faults.findings, *further.findings, *result.findings)
        if self._policy.replay:
            result.replay = {"spread": self._spread(setup)}
        if result.has_passed and trials == TRIALS:
            self._add_robustness(result, setup)
        return result

    def _target(
        self,
        drawn: DrawnCase,
        setup: TrialSetup,
        constants: dict[str, Any],
        known_budgets: dict[str, float | None],
        conditions: Conditions,
    ) -> TimingTarget:
        """Makes the timing target; the first draw releases its inputs."""
        told = encoded(self._candidate, constants)
        plain, conditions.precision = drawn.plain_inputs(), drawn.problem.precision
        drawn.forget_inputs()
        return TimingTarget(
            problem=drawn.problem,
            module=drawn.module,
            constants=told,
            context=setup.own,
            first=drawn.first,
            construct=setup.construct,
            plain=plain,
            device=self._device,
            trial=len(setup.seeds),
            baselines=self._policy.baselines,
            conditions=conditions,
            budgets=known_budgets,
            to_beat=self._policy.to_beat.get(drawn.name, 0.0),
        )

    def _add_speed(
        self,
        result: CaseResult,
        target: TimingTarget,
        results: list[TrialResult],
        worker: WorkerHandle,
        clock: Clock,
    ) -> None:
        """Times a candidate that has passed, and adds the figures to its result."""
        said = result.message
        result.add(self._time(target, results, worker, clock))
        seen, odd = target.conditions.fields(result.measured.get("samples", {}))
        result.add(seen)
        if result.has_passed:  # keep the message of the trials
            notes = [said, result.message, *(f"note: speed: {words}" for words in odd)]
            result.message = "\n".join(filter(None, notes))

    def _add_robustness(self, result: CaseResult, setup: TrialSetup) -> None:
        """Runs the robustness checks on a candidate that has passed, and adds their outcome to its result."""
        self._stages.enter("robustness")
        checks = robustness_checks(
            context=setup.context,
            worker=setup.worker,
            clock=Clock(*self._policy.granted),
            source=setup.source,
            seed=setup.seeds[0],
            progress=self._progress,
        )
        self._is_upset = self._is_upset or checks.is_upset
        result.robustness = checks.ends
        result.findings += checks.findings

    def _spread(self, setup: TrialSetup) -> dict[str, Any]:
        """Measures how much the candidate's results on the first trial's inputs vary."""
        if setup.worker.is_closed:
            return {"failure": "the candidate's process has ended"}
        self._stages.enter("repeats")
        self._progress("running again on the same inputs")
        source = setup.source
        drawn = draw(source.problem, source.module, source.args, setup.seeds[0], source.device)
        found = spread(setup.context, setup.worker, Clock(*self._policy.granted), drawn)
        self._is_upset = self._is_upset or "failure" in found
        return found

    def _time(
        self, target: TimingTarget, results: list[TrialResult], worker: WorkerHandle, clock: Clock
    ) -> dict[str, Any]:
        """Times the candidate against its baselines and traces its kernels; returns the record's fields."""
        assert self._baseline is not None
        self._progress("timing")
        self._scanned()  # so that nothing else runs during timing
        self._workers.settle_next()
        with self._quiet(), SpeedTimer(target, worker, clock, self._baseline, self._stages) as timing:
            try:
                outcome = timing.run()
            except (BaselineError, CandidateStopped, torch.OutOfMemoryError, DeviceMemoryError) as error:
                untimed = self._untimed(error)
            else:
                wrong = next((result for result in outcome.audits if result.failed), None)
                if wrong is not None:
                    failed = summary([wrong], self._notes)
                    words = "in a timed call, made without a pause after the one before"
                    return {**failed, "trials": len(results), "message": f"{words}: {failed['message']}"}
                self._stages.enter("kernels")
                fields = outcome.fields()
                fields |= self._evidence(target.context, worker, fields)
                try:
                    fields["modes"] = timing.short_calls(outcome, fields.get("kernels", {}))
                except (BaselineError, CandidateStopped) as error:
                    if isinstance(error, CandidateStopped) and not self._integrity.tolerates(error):
                        raise
                    words = error.words if isinstance(error, BaselineError) else error.message
                    note = f"note: other ways to time short calls failed: {words}"
                    fields["message"] = "\n".join(filter(None, (fields["message"], note)))
                self._is_upset = timing.is_upset
                return fields
        self._stages.enter("kernels")  # after the baselines have released their memory
        return untimed | self._evidence(target.context, worker, untimed)

    def _evidence(self, context: CaseContext, worker: WorkerHandle, fields: dict[str, Any]) -> dict[str, Any]:
        """Traces the candidate on a separate clock and returns the record's fields about its work.

        Args:
            context: The case's context.
            worker: The candidate's worker.
            fields: The record's fields so far, with latencies if there are any.
        """
        self._worker.keep()
        libraries = self._surroundings.cache.libraries(self._candidate.solution.digest).values()
        latencies = {name: fields.get(f"{name}_ms") for name in ("forward", "forward_backward")}
        return traced(context, worker, Clock(*self._policy.granted), libraries, latencies)

    def _untimed(self, error: Exception) -> dict[str, Any]:
        """Returns the note for a candidate that passed and could not be timed.

        Raises:
            CandidateStopped: The candidate is at fault. Too little memory for it and its baselines is not
                its fault.
        """
        if isinstance(error, CandidateStopped) and error.status is not Status.OUT_OF_MEMORY:
            if not self._integrity.tolerates(error):
                raise error
            return {"message": f"speed was not measured: {error.message}"}
        words = (
            error.words
            if isinstance(error, BaselineError)
            else f"not enough memory for the candidate and its baselines: {error}"
        )
        return {"message": f"speed was not measured: {words}"}

    @property
    def _notes(self) -> list[str]:
        """Returns the findings about the solution that do not depend on its verdict."""
        if differs(self._candidate, "get_inputs"):
            return ["note: the solution's own get_inputs differs from the problem's and was ignored"]
        return []

    def _stopped(self, record: EvaluationRecord, stop: CandidateStopped) -> EvaluationRecord:
        folder, solution = self._surroundings.log_folder, self._candidate.solution
        build_log = kept_log(folder, solution, stop.build_log) if stop.build_log else None
        status, told = self._faults.verdict(stop.status, stop.message)
        return replace(
            record,
            status=status,
            message=shortened(told, MAX_MESSAGE_CHARACTERS) + log_words(build_log),
            rule=stop.rule if status is Status.CHEATED else None,
            findings=(*self._faults.findings, *stop.findings),
            build_log=build_log,
        )
