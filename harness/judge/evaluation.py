"""One candidate, case after case: from a worker's start to a record."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch

from harness.errors import HarnessError, ProblemError
from harness.judge.blank_records import TRIALS, blank_record
from harness.judge.case_context import CaseContext
from harness.judge.compare.comparison import TrialResult
from harness.judge.evidence.gpu_build import GpuBuild, compiled_for_gpu
from harness.judge.evidence.tracing import traced
from harness.judge.exchange.exchange import Exchange, TensorForm
from harness.judge.inputs.draws import Draw, derive_seed, draw, init_args
from harness.judge.inputs.matching import MatchError, match_state
from harness.judge.inputs.memory_fit import shortage, spare_memory
from harness.judge.integrity import Integrity
from harness.judge.policy import Policy, Surroundings, new_secret
from harness.judge.process.builder import IMPORTING, Refused, keep_builds, load_command
from harness.judge.process.faults import Faults, stop_for
from harness.judge.process.handle import CandidateStopped, Clock, WorkerHandle
from harness.judge.process.workers import Workers
from harness.judge.reference.kink_modes import Watcher, Watching
from harness.judge.reference.kinks import Kinks
from harness.judge.reference.reference import EXACT_SHARE, Reference, differentiable_leaves, input_names
from harness.judge.reference.reference_cache import CaseCache, ReferenceCache, Shape
from harness.judge.timing.device_conditions import Conditions
from harness.judge.timing.rivals import Baseline, BaselineError
from harness.judge.timing.speed import SpeedTimer
from harness.judge.timing.stopwatch import Stopwatch
from harness.judge.timing.timing_target import TimingTarget
from harness.judge.trials.further_draws import DrawSource, Further, further_trials
from harness.judge.trials.repeats import spread
from harness.judge.trials.robustness import robustness_checks
from harness.judge.trials.trials import Plan, budgets, run_trials, summary
from harness.judge.validation.screening import Screen
from harness.project import problems
from harness.project.problems import ProblemModule
from harness.project.solutions import Candidate
from harness.records.record import ERROR, EvaluationRecord, Finding, Status
from harness.scanning.scan import scan
from harness.system.text import shortened
from harness.wire.cuda_memory import DeviceMemoryError
from harness.wire.messages import Construct, Constructed, Loaded, StateTensor
from harness.wire.state import modes_of
from harness.wire.values import UnsupportedValue, encode_plain

#: A worker's own words are cut where they arrive; names and shapes that it tells go into messages, too.
MAX_MESSAGE_CHARACTERS = 12_000
logger = logging.getLogger(__name__)
#: Ends that rest on a comparison with the reference.
COMPARED = frozenset({Status.PASSED, Status.WRONG_OUTPUT, Status.WRONG_GRADIENT, Status.NO_GRADIENT})
#: Ends after which the worker still answers.
LEFT_ALIVE = frozenset(
    {
        *(Status.PASSED, Status.WRONG_OUTPUT, Status.WRONG_GRADIENT, Status.NO_GRADIENT, Status.BUILD_ERROR),
        *(Status.LOAD_ERROR, Status.RUNTIME_ERROR, Status.UNSAFE, Status.UNSUPPORTED),
    }
)


def _log_words(build_log: str | None) -> str:
    return f"\nfull log: {build_log}" if build_log else ""


def _watched_buffers(changes: frozenset[str], names: dict[str, str], exchange: Exchange) -> tuple[str, ...]:
    """The reference's buffers that are looked at after a forward.

    Those that it changes, and those that the candidate has under the same name, which it must leave alone as well.

    Raises:
        CandidateStopped: It lacks one of the former.
    """
    if missing := sorted(changes - names.keys()):
        raise CandidateStopped(
            Status.LOAD_ERROR,
            f"no buffer of ModelNew can be matched to the reference's {', '.join(missing)}, which forward changes and "
            "which is compared as well. Register it with register_buffer under the reference's name, or declare "
            "PARAMETER_MAP = {'name in ModelNew': 'name in Model'}.",
        )
    return tuple(name for name in exchange.buffers if name in changes or names.get(name) == name)


class CandidateJudge:
    """Judges one candidate; one worker serves all its cases, unless it dies.

    Args:
        candidate: The solution and its problem.
        policy: How to judge.
        surroundings: The machine.
        workers: Where workers come from.
        progress: Called with a word for what happens now.
        baseline: Eager's worker, to be timed against; None where speed is not measured.
        shared: What is known of references, for all candidates of a batch.
        refused: What a compiler has refused of the solution before (see ``builder``).
        quiet: Entered while the candidate is timed: nothing of ours should keep processors busy.
        has_next: Whether another candidate follows: its worker is started meanwhile.
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
        self._refused_builds = refused
        self._quiet = quiet
        self._device = torch.device(policy.device)
        self._baseline = baseline
        self._candidate = candidate
        self._policy = policy
        self._surroundings = surroundings
        self._workers = workers
        self._progress = progress
        self._worker: WorkerHandle | None = None
        self._loaded: Loaded | None = None
        self._is_upset = self._was_upset = False
        self._stages = Stopwatch()
        self._faults = Faults()
        self._integrity = Integrity(policy.rules)
        self._never_loads: CandidateStopped | None = None
        self._scan: Future[tuple[Finding, ...]] | None = None
        self._gpu_build: GpuBuild | None = None
        self._build_s = 0.0
        self._own_seed = policy.own_seed or new_secret()

    @property
    def may_have_harmed_the_device(self) -> bool:
        """Whether the last evaluation ended in a way that faults leave behind, whatever its status."""
        return self._was_upset

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
            self._loaded = None
            self._is_upset = False

    def evaluate(self, case: str, constants: dict[str, Any], trials: int = TRIALS) -> EvaluationRecord:
        """Judge the candidate on a case.

        Args:
            case: The case's name.
            constants: The problem's constants that it replaces.
            trials: How many trials it must pass; fewer than ``TRIALS`` where it has passed those before.

        Raises:
            ProblemError: The problem is malformed or its reference does not run.
        """
        started = time.monotonic()
        clock = Clock(*self._policy.granted, build_s=self._build_s)
        build_before = self._build_s
        policy = self._policy if trials == TRIALS else replace(self._policy, trials=trials)
        blank = blank_record(self._candidate, policy, self._surroundings.environment, case, constants)
        record = replace(blank, own_seed=self._own_seed)
        self._stages = Stopwatch()
        self._faults = Faults(bool(self._policy.check))
        self._integrity = Integrity(self._policy.rules)
        try:
            record = replace(record, **self._judge(case, constants, trials, clock))
        except CandidateStopped as stop:
            record = self._stopped(record, stop)
        except (torch.OutOfMemoryError, DeviceMemoryError) as error:
            message = shortage(self._candidate.problem, case, constants, self._device, error)
            record = replace(record, status=Status.OUT_OF_MEMORY, message=message)
        except ProblemError:
            raise
        except HarnessError as error:
            record = replace(record, status=Status.HARNESS_ERROR, message=str(error))
        if self._policy.check:
            record = self._with_gpu_build(record, built=clock.build_s > build_before)
        self._build_s = clock.build_s
        self._keep()
        log = self._worker.said() if self._worker is not None else ""
        confinement = self._worker.confinement if self._worker is not None else {}
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
            log=log,
            confinement=confinement,
            findings=(*record.findings, *self._integrity.found, *self._scanned()),
        )
        return self._integrity.decided(record)

    def _with_gpu_build(self, record: EvaluationRecord, built: bool) -> EvaluationRecord:
        """The record with what nvcc makes of the sources: ``BUILD_ERROR`` where it passed and they do not compile.

        Args:
            record: How the case ended on the emulator.
            built: Whether anything was built in it; what is known of earlier cases holds on if not.
        """
        if self._worker is not None and record.status in LEFT_ALIVE and (built or self._gpu_build is None):
            self._stages.enter("nvcc")
            self._progress(f"compiling for {self._policy.check}")
            evidence_clock = Clock(*self._policy.granted)
            try:
                self._gpu_build = compiled_for_gpu(self._worker, self._policy.check, evidence_clock)
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
            record = replace(record, build_log=self._kept_log(log))
        if record.status is not Status.PASSED or finding.level != ERROR:
            return record
        error = self._gpu_build.compilation.error
        message = f"right on the emulator, but nvcc does not compile this: {error}{_log_words(record.build_log)}"
        told = "\n".join(filter(None, (message, record.message)))
        return replace(record, status=Status.BUILD_ERROR, message=told)

    def _started_scan(self) -> Future[tuple[Finding, ...]]:
        """Have the solution's text looked at while the judge waits for others; once for all cases."""
        if self._scan is None:
            with_one = ThreadPoolExecutor(1)
            self._scan = with_one.submit(scan, self._candidate.solution.source)
            with_one.shutdown(wait=False)
        return self._scan

    def _scanned(self) -> tuple[Finding, ...]:
        """What stands in the solution's text."""
        return self._started_scan().result()

    def _judge(self, case: str, constants: dict[str, Any], trials: int, clock: Clock) -> dict[str, Any]:
        """Judge and, on a GPU, time; the record's fields that this fills."""
        problem = self._candidate.problem
        if self._worker is None and self._never_loads is None and self._workers.are_ready():
            self._start_worker()  # it gets ready while the judge draws
        conditions = None
        if self._baseline is not None:
            around = self._surroundings
            conditions = Conditions(
                problem, constants, self._device, around.ceilings, around.work_folder, WorkerHandle.living
            )
        self._stages.enter("inputs")
        module = problems.load(problem, constants)
        secret = self._policy.secret
        args = init_args(problem, module, derive_seed(secret, case, "init"))
        first = draw(problem, module, args, derive_seed(secret, case, "draw", 0), self._device)
        known = self._shared.of(self._key(case, constants))
        known.shared = 0
        reference, shape = self._reference(known, module, first, case)
        leaves = shape.leaves
        exchange = Exchange(
            args, first.inputs, first.state, shape.outputs,
            {name: leaf for name, leaf in self._leaf_tensors(first).items() if name in leaves},
            input_names(first), self._device, self._integrity,
        )  # fmt: skip
        with contextlib.closing(exchange), contextlib.ExitStack() as at_end:
            at_end.callback(torch.cuda.empty_cache)  # the next candidate's worker needs that memory
            at_end.callback(self._shared.trim)
            at_end.callback(reference.forget)
            self._stages.enter("worker")
            self._started_scan()  # not earlier: each would keep the other from running
            worker = self._ready_worker(clock)
            construct = self._construct_command(exchange, constants, first)
            names = self._construct(worker, exchange, construct, first.state, clock)
            buffers = _watched_buffers(reference.changes, names, exchange)
            source = DrawSource(problem, module, args, self._device)
            kinks = None
            if shape.has_kinks:
                kinks = Kinks(reference, problem.precision, source.fresh_inputs, known.steps)
            context = CaseContext(
                exchange,
                reference,
                names,
                leaves,
                shape.structure,
                problem.precision,
                f"{secret}:{case}",
                kinks,
                buffers,
                known,
                self._policy.is_relaxed,
                self._faults,
            )
            own = self._own(context, source, case)
            seeds = [derive_seed(secret, case, "draw", trial) for trial in range(trials - 1)]
            seeds.append(derive_seed(self._own_seed, case, "draw", trials - 1))
            without_gradients = derive_seed(self._own_seed, case, "draw", "without gradients")
            plan = Plan(context, own, source, first, seeds, without_gradients)
            self._stages.enter("trials")
            if self._has_next:
                self._workers.start_next()
            results = run_trials(plan, worker, clock, self._progress)
            del plan  # its first draw takes room that timing needs
            fields = summary(results, self._notes)
            further = Further({}, ())
            if fields["status"] is Status.PASSED and problem.draws and trials == TRIALS and not self._faults.kept:
                self._stages.enter("further draws")
                evidence_clock = Clock(*self._policy.granted)
                further = further_trials(context, worker, evidence_clock, source, trials, self._progress)
            if fields["status"] is Status.PASSED and conditions is not None:
                told = self._encoded(constants)
                plain = [None if isinstance(value, torch.Tensor) else value for value in first.inputs]
                first = replace(first, inputs=[])  # they take room that timing needs
                target = TimingTarget(
                    problem,
                    module,
                    told,
                    own,
                    first,
                    plain,
                    construct,
                    self._device,
                    trials,
                    self._policy.baselines,
                    conditions,
                    budgets(results),
                )
                said = [fields["message"]]
                fields |= self._time(target, results, worker, clock)
                seen, odd = conditions.fields(fields.get("samples", {}))
                fields |= seen
                if fields["status"] is Status.PASSED:  # what was said of the trials stays said
                    notes = [*said, fields["message"], *(f"note: speed: {words}" for words in odd)]
                    fields["message"] = "\n".join(filter(None, notes))
            elif fields["status"] is Status.PASSED:
                self._stages.enter("kernels")
                fields |= self._evidence(context, worker, fields)
            fields["shared_draws"] = known.shared
            status, message = self._faults.verdict(fields["status"], fields["message"])
            findings = (*self._faults.kept, *further.findings, *fields.get("findings", ()))
            if self._policy.replay:
                fields["replay"] = {"spread": self._spread(context, worker, source, seeds[0])}
            if status is Status.PASSED and trials == TRIALS:
                self._stages.enter("robustness")
                clock = Clock(*self._policy.granted)
                checks = robustness_checks(context, worker, clock, source, seeds[0], self._progress)
                self._is_upset = self._is_upset or checks.is_upset
                fields["robustness"] = checks.ends
                findings += checks.findings
            return {
                **fields, "status": status, "message": message, "findings": findings, "further_draws": further.ends
            }  # fmt: skip

    def _key(self, case: str, constants: dict[str, Any]) -> Hashable:
        """All that a case's draws and its reference's evaluations follow from."""
        problem, policy = self._candidate.problem, self._policy
        file = str(problem.path.resolve()), problem.digest
        return *file, case, repr(sorted(constants.items())), policy.device, policy.secret, policy.forward_only

    def _reference(self, known: CaseCache, module: ProblemModule, first: Draw, case: str) -> tuple[Reference, Shape]:
        """What evaluates the reference, and what it looks like; an eager run where that is not known yet."""
        memory = spare_memory(self._device) // EXACT_SHARE
        if known.reference is None or known.shape is None:
            reference = Reference(self._candidate.problem, not self._policy.forward_only, memory, self._device)
            reference.same_generator = module.same_generator
            known.shape = self._shape(reference, first, case)
            known.reference = reference
        known.reference.grant(memory)
        return known.reference, known.shape

    def _shape(self, reference: Reference, first: Draw, case: str) -> Shape:
        """What the reference looks like, from an eager run."""
        watcher = Watcher()
        seed = derive_seed(self._policy.secret, case, "shape")
        graph = reference.eager(first, seed, Watching(watcher))
        reference.check_randomness(first, seed, graph)
        leaves: tuple[str, ...] = ()
        if any(output.requires_grad for output in graph.outputs):
            ones = [
                torch.ones((), dtype=output.dtype, device=output.device).expand_as(output) for output in graph.outputs
            ]
            leaves = tuple(differentiable_leaves(graph.gradients(ones)))
        forms = [TensorForm(output.shape, output.dtype) for output in graph.outputs]
        return Shape(forms, leaves, graph.structure, watcher.found)

    def _spread(self, context: CaseContext, worker: WorkerHandle, source: DrawSource, seed: int) -> dict[str, Any]:
        """How far the candidate's results on the first trial's inputs lie apart."""
        if worker.is_closed:
            return {"failure": "its process has ended"}
        self._stages.enter("repeats")
        self._progress("running again on the same inputs")
        drawn = draw(source.problem, source.module, source.args, seed, source.device)
        found = spread(context, worker, Clock(*self._policy.granted), drawn)
        self._is_upset = self._is_upset or "failure" in found
        return found

    def _own(self, context: CaseContext, source: DrawSource, case: str) -> CaseContext:
        """The context for draws that no other candidate is given; nothing measured on them is kept."""
        kinks = None
        if context.kinks is not None:
            kinks = Kinks(context.reference, context.precision, source.fresh_inputs)
        return replace(context, secret=f"{self._own_seed}:{case}", kinks=kinks, known=CaseCache(), gauges_at_need=True)

    def _leaf_tensors(self, first: Draw) -> dict[str, torch.Tensor]:
        named = {name: first.inputs[position] for position, name in input_names(first).items()}
        return named | dict(first.model.named_parameters())

    def _time(
        self, target: TimingTarget, results: list[TrialResult], worker: WorkerHandle, clock: Clock
    ) -> dict[str, Any]:
        """Time the candidate against its rivals, and see its kernels; the record's fields that this fills."""
        assert self._baseline is not None
        self._progress("timing")
        self._scanned()  # nothing else is to run beside what is timed
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
                    words = "in a timed call, one of many without a pause between them"
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
                    note = f"note: short calls were not measured in other ways: {words}"
                    fields["message"] = "\n".join(filter(None, (fields["message"], note)))
                self._is_upset = timing.is_upset
                return fields
        self._stages.enter("kernels")  # once its rivals have given their memory back
        return untimed | self._evidence(target.context, worker, untimed)

    def _evidence(self, context: CaseContext, worker: WorkerHandle, fields: dict[str, Any]) -> dict[str, Any]:
        """What the candidate does and whose work that is; on a clock of its own. The record's fields that this fills.

        Args:
            context: The case's context.
            worker: The candidate's.
            fields: What the record has by now; its latencies, where there are any.
        """
        self._keep()
        libraries = self._surroundings.cache.libraries(self._candidate.solution.digest).values()
        latencies = {name: fields.get(f"{name}_ms") for name in ("forward", "forward_backward")}
        return traced(context, worker, Clock(*self._policy.granted), libraries, latencies)

    def _untimed(self, error: Exception) -> dict[str, Any]:
        """What is said of a candidate that passed and could not be timed.

        Raises:
            CandidateStopped: That was its own fault; memory that is short beside rivals is not.
        """
        if isinstance(error, CandidateStopped) and error.status is not Status.OUT_OF_MEMORY:
            if not self._integrity.tolerates(error):
                raise error
            return {"message": f"speed was not measured: {error.message}"}
        words = error.words if isinstance(error, BaselineError) else f"memory is short beside its rivals: {error}"
        return {"message": f"speed was not measured: {words}"}

    def _start_worker(self) -> WorkerHandle:
        self._worker = self._workers.take()
        self._loaded = None
        return self._worker

    def _ready_worker(self, clock: Clock) -> WorkerHandle:
        """A worker that has imported the solution; the same one as before while it lives."""
        if self._never_loads is not None:
            raise self._never_loads
        worker = self._worker or self._start_worker()
        if self._loaded is None:
            self._progress("starting a worker")
            try:
                worker.start()
            except HarnessError:  # it started beside another candidate, which may have left it no memory
                worker.close()
                worker = self._start_worker()
                worker.start()
            if self._policy.require_confinement:
                worker.check_confined()
            self._progress("building")
            load = load_command(
                self._candidate.solution, self._surroundings.cache, self._policy.check, self._refused_builds
            )
            try:
                reply = worker.request(load, clock, IMPORTING)
                if not isinstance(reply, Loaded):
                    raise stop_for(reply, self._faults)
            except CandidateStopped as stop:
                self._never_loads = stop
                raise
            self._loaded = reply
        return worker

    def _construct_command(self, exchange: Exchange, constants: dict[str, Any], first: Draw) -> Construct:
        assert self._loaded is not None
        own = self._loaded.has_init_inputs and self._differs("get_init_inputs")
        told = self._encoded(constants) if own else encode_plain({})
        return Construct(exchange.total_bytes, own, () if own else exchange.args, told, modes_of(first.model))

    def _construct(
        self,
        worker: WorkerHandle,
        exchange: Exchange,
        command: Construct,
        state: list[StateTensor],
        clock: Clock,
    ) -> dict[str, str]:
        """Make the candidate's instance; the reference's state names to the candidate's."""
        assert self._loaded is not None
        self._progress("constructing ModelNew")
        exchange.settle()
        reply = worker.request(command, clock, "constructing ModelNew", exchange.descriptor)
        if not isinstance(reply, Constructed):
            raise stop_for(reply, self._faults)
        try:
            return match_state(state, reply.state, self._loaded.parameter_map)
        except MatchError as error:
            raise CandidateStopped(Status.LOAD_ERROR, str(error)) from None

    def _keep(self) -> None:
        """Copy what the worker has built since the last time into the cache."""
        if self._worker is None:
            return
        keep_builds(self._worker, self._candidate.solution, self._surroundings.cache)

    def _differs(self, function: str) -> bool:
        """Whether the solution defines a function of the problem in another way."""
        own = problems.function_source(self._candidate.solution.source, function)
        return own is not None and own != problems.function_source(self._candidate.problem.source, function)

    @property
    def _notes(self) -> list[str]:
        """What is to be said of the solution, whatever it comes to."""
        if self._differs("get_inputs"):
            return ["note: the solution's own get_inputs differs from the problem's and was ignored"]
        return []

    def _encoded(self, constants: dict[str, Any]) -> str:
        """Constants for a worker.

        Raises:
            ProblemError: A worker cannot be told one of them.
        """
        try:
            return encode_plain(constants)
        except UnsupportedValue as error:
            raise ProblemError(f"{self._candidate.problem.path}: the case's constants: {error}") from None

    def _stopped(self, record: EvaluationRecord, stop: CandidateStopped) -> EvaluationRecord:
        build_log = self._kept_log(stop.build_log) if stop.build_log else None
        status, told = self._faults.verdict(stop.status, stop.message)
        return replace(
            record,
            status=status,
            message=shortened(told, MAX_MESSAGE_CHARACTERS) + _log_words(build_log),
            rule=stop.rule if status is Status.CHEATED else None,
            findings=(*self._faults.kept, *stop.findings),
            build_log=build_log,
        )

    def _kept_log(self, log: str) -> str | None:
        """The path of a compiler's output, written now; None where it cannot be."""
        folder = self._surroundings.log_folder
        path = folder / f"{self._candidate.solution.digest[:16]}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(log, encoding="utf-8", errors="replace")
        except OSError as error:
            logger.warning("cannot write the build log %s: %s", path, error)
            return None
        return str(path)
