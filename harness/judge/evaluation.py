"""One candidate, case after case: from a worker's start to a record."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness import problems
from harness.baselines import EAGER
from harness.build.cache import MAX_LIBRARIES
from harness.errors import HarnessError, ProblemError
from harness.judge.baseline import Baseline, BaselineError
from harness.judge.buffers import warm
from harness.judge.comparison import TrialResult
from harness.judge.conditions import Conditions
from harness.judge.contest import Contest
from harness.judge.draws import Draw, derive_seed, draw, draw_inputs, init_args
from harness.judge.exchange import Exchange, Form
from harness.judge.explanation import explained, summed_kinks, worst_reports
from harness.judge.fitting import free_memory, shortage
from harness.judge.further_draws import Further, Source, further_trials
from harness.judge.handle import CandidateStopped, Clock, WorkerHandle, Workers
from harness.judge.kinks import Kinks, Settled
from harness.judge.matching import MatchError, match_state
from harness.judge.operands import CUT_TRIALS, cut, mantissa_bits
from harness.judge.policy import Policy, Surroundings
from harness.judge.reference import EXACT_SHARE, Reference, differentiable_leaves, input_names
from harness.judge.speed import Timing
from harness.judge.stages import Stages
from harness.judge.tracing import launches_own_kernels, traced
from harness.judge.trial import (
    THREAD_ORDERS,
    Setting,
    run_trial,
    settle,
    stop_for,
)
from harness.judge.watching import Watcher, Watching
from harness.problems import ProblemModule
from harness.records import EvaluationRecord, Finding, Status
from harness.scanning.scan import scan
from harness.solutions import Candidate
from harness.text import one_line, shortened
from harness.wire.cuda_memory import DeviceMemoryError
from harness.wire.messages import Construct, Constructed, Load, Loaded, Part, StateTensor
from harness.wire.state import modes_of
from harness.wire.values import UnsupportedValue, encode_plain

TRIALS = 5
#: A relative budget beyond which a tensor says little.
VAGUE_BUDGET = 0.03
#: A worker's own words are cut where they arrive; names and shapes that it tells go into messages, too.
MAX_MESSAGE_CHARACTERS = 12_000
logger = logging.getLogger(__name__)


def _budgets(results: Sequence[TrialResult]) -> dict[str, float | None]:
    """The largest relative L2 budget of each tensor; None for one that is little but rounding, or was zero."""
    reports = [report for result in results for report in (*result.outputs, *result.gradients)]
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(report.name for report in reports):
        own = [report for report in reports if report.name == name]
        budget = max(report.l2_budget or 0.0 for report in own)
        found[name] = None if budget > VAGUE_BUDGET or any(report.note for report in own) else budget
    return found


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
    """

    def __init__(
        self,
        candidate: Candidate,
        policy: Policy,
        surroundings: Surroundings,
        workers: Workers,
        progress: Callable[[str], None] = lambda _: None,
        baseline: Baseline | None = None,
    ):
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
        self._stages = Stages()
        self._never_loads: CandidateStopped | None = None
        self._build_s = 0.0

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
        clock = Clock(*self._policy.limits, build_s=self._build_s)
        build_before = self._build_s
        record = self.blank(case, constants)
        self._stages = Stages()
        if trials != TRIALS:
            record = replace(record, policy={**record.policy, "trials": trials})
        try:
            record = self._refused(replace(record, **self._judge(case, constants, trials, clock)))
        except CandidateStopped as stop:
            record = self._stopped(record, stop)
        except (torch.OutOfMemoryError, DeviceMemoryError) as error:
            message = shortage(self._candidate.problem, case, constants, self._device, error)
            record = replace(record, status=Status.OUT_OF_MEMORY, message=message)
        except ProblemError:
            raise
        except HarnessError as error:
            record = replace(record, status=Status.HARNESS_ERROR, message=str(error))
        self._build_s = clock.build_s
        self._keep()
        log = self._worker.said() if self._worker is not None else ""
        confinement = self._worker.confinement if self._worker is not None else {}
        self._was_upset = record.status is not Status.PASSED or self._is_upset
        if self._was_upset:
            self.close()
        return replace(
            record,
            build_s=clock.build_s - build_before,
            run_s=clock.run_s,
            total_s=time.monotonic() - started,
            stages_s=self._stages.leave(),
            log=log,
            confinement=confinement,
            findings=(*record.findings, *self._scanned),
        )

    def _refused(self, record: EvaluationRecord) -> EvaluationRecord:
        """The record, ``CHEATED`` where it passed and a rule is broken that the user wants enforced."""
        if record.status is Status.PASSED:
            for finding in record.findings:
                if finding.kind in self._policy.refused:
                    message = f"{finding.message} (refused by --refuse {finding.kind})"
                    told = "\n".join(filter(None, (message, record.message)))
                    return replace(record, status=Status.CHEATED, rule=finding.kind, message=told)
        return record

    @functools.cached_property
    def _scanned(self) -> tuple[Finding, ...]:
        """What stands in the solution's text; the same in every case."""
        return scan(self._candidate.solution.source)

    def _judge(self, case: str, constants: dict[str, Any], trials: int, clock: Clock) -> dict[str, Any]:
        """Judge and, on a GPU, time; the record's fields that this fills."""
        problem = self._candidate.problem
        if self._worker is None and self._never_loads is None:
            self._start_worker()  # it imports torch while the judge draws
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
        memory = free_memory(self._device)
        reference = Reference(problem, not self._policy.forward_only, memory // EXACT_SHARE, self._device)
        reference.same_generator = module.same_generator
        watcher = Watcher()
        outputs, leaves, structure = self._shape(reference, first, case, watcher)
        exchange = Exchange(
            args, first.inputs, first.state, outputs,
            {name: leaf for name, leaf in self._leaf_tensors(first).items() if name in leaves},
            input_names(first), self._device,
        )  # fmt: skip
        with contextlib.closing(exchange):
            self._stages.enter("worker")
            worker = self._ready_worker(clock)
            construct = self._construct_command(exchange, constants, first)
            names = self._construct(worker, exchange, construct, first.state, clock)
            buffers = _watched_buffers(reference.changes, names, exchange)
            kinks = None
            if watcher.found:
                kinks = Kinks(
                    reference, problem.precision, lambda seed: draw_inputs(problem, module, seed, self._device)
                )
            setting = Setting(
                exchange,
                reference,
                names,
                leaves,
                structure,
                problem.precision,
                f"{secret}:{case}",
                kinks,
                buffers,
                self._policy.is_relaxed,
            )
            self._stages.enter("trials")
            results = self._trials(setting, worker, clock, module, args, first, case, trials)
            fields = self._summary(results)
            further = Further({}, ())
            if fields["status"] is Status.PASSED and problem.draws and trials == TRIALS:
                self._stages.enter("further draws")
                evidence_clock = Clock(*self._policy.limits)
                source = Source(problem, module, args, self._device)
                further = further_trials(setting, worker, evidence_clock, source, trials, self._progress)
            if fields["status"] is Status.PASSED and conditions is not None:
                told = self._encoded(constants)
                plain = [None if isinstance(value, torch.Tensor) else value for value in first.inputs]
                first = replace(first, inputs=[])  # they take room that timing needs
                contest = Contest(
                    problem,
                    module,
                    told,
                    setting,
                    first,
                    plain,
                    construct,
                    self._device,
                    trials,
                    self._policy.baselines,
                    conditions.look,
                    _budgets(results),
                )
                said = [fields["message"]]
                fields |= self._time(contest, results, worker, clock)
                seen, odd = conditions.fields(fields.get("samples", {}))
                fields |= seen
                if fields["status"] is Status.PASSED:  # what was said of the trials stays said
                    notes = [*said, fields["message"], *(f"note: speed: {words}" for words in odd)]
                    fields["message"] = "\n".join(filter(None, notes))
            elif fields["status"] is Status.PASSED:
                self._stages.enter("kernels")
                fields |= traced(setting, worker, Clock(*self._policy.limits))  # evidence has a clock of its own
            findings = (*further.findings, *fields.get("findings", ()))
            return {**fields, "findings": findings, "further_draws": further.ends}

    def _shape(
        self, reference: Reference, first: Draw, case: str, watcher: Watcher
    ) -> tuple[list[Form], tuple[str, ...], tuple[Part, ...]]:
        """The outputs' forms, the leaves that are differentiated, what outputs come in; from an eager run."""
        seed = derive_seed(self._policy.secret, case, "shape")
        graph = reference.eager(first, seed, Watching(watcher))
        reference.check_randomness(first, seed, graph)
        leaves: tuple[str, ...] = ()
        if any(output.requires_grad for output in graph.outputs):
            ones = [
                torch.ones((), dtype=output.dtype, device=output.device).expand_as(output) for output in graph.outputs
            ]
            leaves = tuple(differentiable_leaves(graph.gradients(ones)))
        return [Form(output.shape, output.dtype) for output in graph.outputs], leaves, graph.structure

    def _leaf_tensors(self, first: Draw) -> dict[str, torch.Tensor]:
        named = {name: first.inputs[position] for position, name in input_names(first).items()}
        return named | dict(first.model.named_parameters())

    def _trials(
        self,
        setting: Setting,
        worker: WorkerHandle,
        clock: Clock,
        module: ProblemModule,
        args: list[Any],
        first: Draw,
        case: str,
        trials: int,
    ) -> list[TrialResult]:
        """Run the trials, each under another thread order, until one fails."""
        results: list[TrialResult] = []
        bits = mantissa_bits(setting.precision)
        for trial in range(trials):
            self._progress(f"trial {trial + 1}/{trials}")
            seed = derive_seed(self._policy.secret, case, "draw", trial)
            drawn = first if trial == 0 else draw(self._candidate.problem, module, args, seed, self._device)
            if trial and not all(tensor.is_parameter for tensor in drawn.state):
                others = derive_seed(str(seed), "training")
                warm(drawn, draw_inputs(self._candidate.problem, module, others, self._device), others)
            if bits is not None and trial in CUT_TRIALS:
                drawn = cut(drawn, bits)
            settled = settle(setting, drawn, trial)
            order = THREAD_ORDERS[trial % len(THREAD_ORDERS)]
            result = run_trial(setting, worker, clock, settled, trial, order)
            if result.failed:
                if self._device.type == "cpu":
                    result.is_unsteady = self._is_unsteady(setting, worker, clock, settled, trial, order)
                return [*results, result]
            results.append(result)
        return results

    def _is_unsteady(
        self,
        setting: Setting,
        worker: WorkerHandle,
        clock: Clock,
        settled: Draw | Settled,
        trial: int,
        failed_order: str,
    ) -> bool:
        """Whether a failed trial passes when it runs again, and not because threads run in another order.

        Raises:
            CandidateStopped: It passes because they do, which is a race (``UNSAFE``), or a run ended otherwise.
        """

        def passes(order: str) -> bool:
            self._progress(f"trial {trial + 1} again, threads in {order} order")
            return not run_trial(setting, worker, clock, settled, trial, order).failed

        others = [order for order in THREAD_ORDERS if order != failed_order]
        try:
            right = next((order for order in others if passes(order)), None)
            if right is None:
                return False
            if passes(failed_order) or not launches_own_kernels(setting, worker, clock):
                return True
        except CandidateStopped as stop:
            if stop.status is Status.TIMEOUT:
                return False  # the wrong result that is there already says more
            raise
        message = (
            f"the result depends on the order in which threads run: right in {right} order, wrong in {failed_order} "
            "order"
        )
        remedy = "synchronise threads that share memory: is a __syncthreads() or __syncwarp() missing?"
        finding = Finding("race", None, None, (), remedy, message)
        raise CandidateStopped(Status.UNSAFE, f"race: {message}; {remedy}", findings=(finding,))

    def _time(self, contest: Contest, results: list[TrialResult], worker: WorkerHandle, clock: Clock) -> dict[str, Any]:
        """Time the candidate against its rivals, and see its kernels; the record's fields that this fills."""
        assert self._baseline is not None
        self._progress("timing")
        evidence_clock = Clock(*self._policy.limits)
        with Timing(contest, worker, clock, self._baseline, self._stages) as timing:
            try:
                outcome = timing.run()
            except (BaselineError, CandidateStopped, torch.OutOfMemoryError, DeviceMemoryError) as error:
                untimed = self._untimed(error)
            else:
                wrong = next((result for result in outcome.audits if result.failed), None)
                if wrong is not None:
                    summary = self._summary([wrong])
                    words = "in a timed call, one of many without a pause between them"
                    return {**summary, "trials": len(results), "message": f"{words}: {summary['message']}"}
                self._stages.enter("kernels")
                fields = outcome.fields() | traced(contest.setting, worker, evidence_clock)
                try:
                    fields["modes"] = timing.short_calls(outcome, fields.get("kernels", {}))
                except BaselineError as error:
                    note = f"note: short calls were not measured in other ways: {error.words}"
                    fields["message"] = "\n".join(filter(None, (fields["message"], note)))
                self._is_upset = timing.is_upset
                return fields
        self._stages.enter("kernels")  # once its rivals have given their memory back
        return untimed | traced(contest.setting, worker, evidence_clock)

    @staticmethod
    def _untimed(error: Exception) -> dict[str, Any]:
        """What is said of a candidate that passed and could not be timed.

        Raises:
            CandidateStopped: That was its own fault; memory that is short beside rivals is not.
        """
        if isinstance(error, CandidateStopped) and error.status is not Status.OUT_OF_MEMORY:
            raise error
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
            worker.start()
            if self._policy.require_confinement:
                worker.check_confined()
            self._progress("building")
            solution = self._candidate.solution
            cached = {key: str(path) for key, path in self._surroundings.cache.libraries(solution.digest).items()}
            try:
                reply = worker.request(Load(str(solution.path), cached), clock, "importing the solution")
                if not isinstance(reply, Loaded):
                    raise stop_for(reply)
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
            raise stop_for(reply)
        try:
            return match_state(state, reply.state, self._loaded.parameter_map)
        except MatchError as error:
            raise CandidateStopped(Status.LOAD_ERROR, str(error)) from None

    def _keep(self) -> None:
        """Copy what the worker has built since the last time into the cache."""
        if self._worker is None:
            return
        built, self._worker.built = self._worker.built, {}
        name = one_line(self._candidate.solution.name)
        kept = 0
        for key, file in itertools.islice(built.items(), MAX_LIBRARIES):
            path = self._worker.build_folder / Path(file).name
            try:
                kept += self._surroundings.cache.keep(self._candidate.solution.digest, key, path)
            except OSError as error:
                logger.warning("the build cache cannot be written, the next run builds again: %s", error)
        if kept < len(built):
            logger.warning("%d of %d builds of %s were not kept", len(built) - kept, len(built), name)

    def _differs(self, function: str) -> bool:
        """Whether the solution defines a function of the problem in another way."""
        own = problems.function_source(self._candidate.solution.source, function)
        return own is not None and own != problems.function_source(self._candidate.problem.source, function)

    def _encoded(self, constants: dict[str, Any]) -> str:
        """Constants for a worker.

        Raises:
            ProblemError: A worker cannot be told one of them.
        """
        try:
            return encode_plain(constants)
        except UnsupportedValue as error:
            raise ProblemError(f"{self._candidate.problem.path}: the case's constants: {error}") from None

    def blank(self, case: str, constants: dict[str, Any]) -> EvaluationRecord:
        """The record of a case as it stands before anything has run."""
        limits = self._policy.limits
        return EvaluationRecord(
            problem=self._candidate.problem.name,
            solution=self._candidate.solution.name,
            case=case,
            device=self._policy.device,
            status=Status.HARNESS_ERROR,
            message="",
            seed=self._policy.secret,
            digest=self._candidate.solution.digest,
            problem_digest=self._candidate.problem.digest,
            precision_class=self._candidate.problem.precision,
            constants=constants,
            environment=self._surroundings.environment,
            policy={
                "forward_only": self._policy.forward_only,
                "timeout_s": limits.run_s,
                "build_timeout_s": limits.build_s,
                **({"require_confinement": True} if self._policy.require_confinement else {}),
                **({"baselines": list(self._policy.baselines)} if self._policy.baselines != (EAGER,) else {}),
                **({"precision": "relaxed"} if self._policy.is_relaxed else {}),
                **({"refused": list(self._policy.refused)} if self._policy.refused else {}),
            },
            solution_path=str(self._candidate.solution.path),
            problem_path=str(self._candidate.problem.path.resolve()),
        )

    def _stopped(self, record: EvaluationRecord, stop: CandidateStopped) -> EvaluationRecord:
        build_log = None
        if stop.build_log:
            folder = self._surroundings.log_folder
            path = folder / f"{self._candidate.solution.digest[:16]}.log"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                path.write_text(stop.build_log, encoding="utf-8", errors="replace")
                build_log = str(path)
            except OSError as error:
                logger.warning("cannot write the build log %s: %s", path, error)
        words = shortened(stop.message, MAX_MESSAGE_CHARACTERS)
        message = words + (f"\nfull log: {build_log}" if build_log else "")
        return replace(
            record,
            status=stop.status,
            message=message,
            rule=stop.rule,
            findings=stop.findings,
            build_log=build_log,
        )

    def _summary(self, results: list[TrialResult]) -> dict[str, Any]:
        """Status, message and the worst report of each tensor over the trials."""
        last = results[-1]
        notes = []
        if self._differs("get_inputs"):
            notes.append("note: the solution's own get_inputs differs from the problem's and was ignored")
        kinks = summed_kinks(results)
        if kinks.get("remaining"):
            notes.append(f"note: {kinks['remaining']} elements within rounding of a branch remained (see `kinks`)")
        status = Status.PASSED
        if last.failed:
            wrong_output = any(not report.ok for report in last.outputs)
            status = Status.WRONG_OUTPUT if wrong_output else Status.WRONG_GRADIENT
            notes = [*(explained(report, last) for report in last.failed), *notes]
            if last.is_unsteady:
                notes.append(
                    "note: the same trial passed when it ran again: what is returned changes from call to call (is "
                    "something left over from an earlier call, or not written in every call?)"
                )
            if last.again:
                notes.append(
                    "note: this is the trial in which forward runs once more, on other values, before its result is "
                    "read: if only that fails, a result or what backward needs lies in memory that calls share"
                )
        return {
            "status": status,
            "message": "\n".join(notes),
            "outputs": worst_reports([result.outputs for result in results]),
            "gradients": worst_reports([result.gradients for result in results]),
            "trials": len(results),
            "reference_pieces": results[-1].pieces,
            "kinks": kinks,
        }
