"""One candidate, case after case: from a worker's start to a record."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness import problems
from harness.build.cache import BuildCache
from harness.errors import HarnessError, ProblemError
from harness.judge.comparison import TrialResult
from harness.judge.draws import Draw, derive_seed, draw, init_args
from harness.judge.exchange import Exchange
from harness.judge.fitting import available_memory
from harness.judge.handle import CandidateStopped, Clock, WorkerHandle
from harness.judge.matching import MatchError, match_state
from harness.judge.reference import Reference, differentiable_leaves, input_names
from harness.judge.trial import THREAD_ORDERS, Setting, run_trial, stop_for
from harness.problems import ProblemModule
from harness.records import EvaluationRecord, Finding, Status, TensorReport
from harness.solutions import Candidate
from harness.wire.messages import Construct, Constructed, Load, Loaded, StateTensor
from harness.wire.values import encode_plain

TRIALS = 5
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Policy:
    """How a batch is judged.

    Attributes:
        device: ``cpu``.
        secret: What all seeds derive from, in hex.
        run_limit_s: Seconds that a candidate may run on one case.
        build_limit_s: Seconds that a candidate's builds may take.
        forward_only: Judge outputs alone.
        memory_bytes: Memory that a candidate may allocate; None for no limit.
    """

    device: str
    secret: str
    run_limit_s: float = 60.0
    build_limit_s: float = 300.0
    forward_only: bool = False
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Surroundings:
    """Where builds are kept, what workers load, what records say of the machine.

    Attributes:
        cache: Built libraries.
        log_folder: Where the full output of failed builds goes.
        libraries: The emulator's runtime libraries by name.
        environment: Versions and processor, for records.
    """

    cache: BuildCache
    log_folder: Path
    libraries: dict[str, str]
    environment: dict[str, str]


class CandidateJudge:
    """Judges one candidate; one worker serves all its cases, unless it dies.

    Args:
        candidate: The solution and its problem.
        policy: How to judge.
        surroundings: The machine.
        progress: Called with a word for what happens now.
    """

    def __init__(
        self,
        candidate: Candidate,
        policy: Policy,
        surroundings: Surroundings,
        progress: Callable[[str], None] = lambda _: None,
    ):
        self._candidate = candidate
        self._policy = policy
        self._surroundings = surroundings
        self._progress = progress
        self._worker: WorkerHandle | None = None
        self._loaded: Loaded | None = None
        self._never_loads: CandidateStopped | None = None
        self._build_s = 0.0

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
            self._loaded = None

    def evaluate(self, case: str, constants: dict[str, Any]) -> EvaluationRecord:
        """Judge the candidate on a case.

        Args:
            case: The case's name.
            constants: The problem's constants that it replaces.

        Raises:
            ProblemError: The problem is malformed or its reference does not run.
        """
        started = time.monotonic()
        clock = Clock(self._policy.run_limit_s, self._policy.build_limit_s, build_s=self._build_s)
        build_before = self._build_s
        record = self._blank(case, constants)
        try:
            results = self._judge(case, constants, clock)
            record = replace(record, **self._summary(results))
        except CandidateStopped as stop:
            record = self._stopped(record, stop)
        except ProblemError:
            raise
        except HarnessError as error:
            record = replace(record, status=Status.HARNESS_ERROR, message=str(error))
        self._build_s = clock.build_s
        log = self._worker.log.text() if self._worker is not None else ""
        if record.status is not Status.PASSED:
            self.close()
        return replace(
            record,
            build_s=clock.build_s - build_before,
            run_s=clock.run_s,
            total_s=time.monotonic() - started,
            log=log,
        )

    def _judge(self, case: str, constants: dict[str, Any], clock: Clock) -> list[TrialResult]:
        problem = self._candidate.problem
        module = problems.load(problem, constants)
        secret = self._policy.secret
        args = init_args(problem, module, derive_seed(secret, case, "init"))
        first = draw(problem, module, args, derive_seed(secret, case, "draw", 0))
        reference = Reference(problem, not self._policy.forward_only, available_memory() // 4)
        graph = reference.eager(first, derive_seed(secret, case, "shape"))
        leaves: tuple[str, ...] = ()
        if any(output.requires_grad for output in graph.outputs):
            leaves = tuple(differentiable_leaves(graph.gradients([torch.ones_like(o) for o in graph.outputs])))
        state = first.state
        exchange = Exchange(
            args, first.inputs, state, graph.outputs,
            {name: graph.leaves[name] for name in leaves}, input_names(first),
        )  # fmt: skip
        with contextlib.closing(exchange):
            worker = self._ready_worker(clock)
            names = self._construct(worker, exchange, state, constants, clock)
            setting = Setting(exchange, reference, names, leaves, problem.precision, f"{secret}:{case}")
            return self._trials(setting, worker, clock, module, args, first)

    def _trials(
        self,
        setting: Setting,
        worker: WorkerHandle,
        clock: Clock,
        module: ProblemModule,
        args: list[Any],
        first: Draw,
    ) -> list[TrialResult]:
        """Run the trials, each under another thread order, until one fails."""
        results: list[TrialResult] = []
        for trial in range(TRIALS):
            self._progress(f"trial {trial + 1}/{TRIALS}")
            seed = derive_seed(self._policy.secret, setting.secret.partition(":")[2], "draw", trial)
            drawn = first if trial == 0 else draw(self._candidate.problem, module, args, seed)
            order = THREAD_ORDERS[trial % len(THREAD_ORDERS)]
            result = run_trial(setting, worker, clock, drawn, trial, order)
            if result.failed:
                self._try_other_orders(setting, worker, clock, drawn, trial, order)
                return [*results, result]
            results.append(result)
        return results

    def _try_other_orders(
        self, setting: Setting, worker: WorkerHandle, clock: Clock, drawn: Draw, trial: int, failed_order: str
    ) -> None:
        """Tell a race from a wrong result: does the same trial pass under another order of threads?

        Raises:
            CandidateStopped: It does (``UNSAFE``), or a run ended otherwise.
        """
        for order in THREAD_ORDERS:
            if order == failed_order:
                continue
            self._progress(f"trial {trial + 1} again, threads in {order} order")
            if not run_trial(setting, worker, clock, drawn, trial, order).failed:
                message = (
                    f"the result depends on the order in which threads run: right in {order} order, wrong in "
                    f"{failed_order} order"
                )
                remedy = "synchronise threads that share memory: is a __syncthreads() or __syncwarp() missing?"
                finding = Finding("race", None, None, (), remedy, message)
                raise CandidateStopped(Status.UNSAFE, f"race: {message}; {remedy}", findings=(finding,))

    def _ready_worker(self, clock: Clock) -> WorkerHandle:
        """A worker that has imported the solution; the same one as before while it lives."""
        if self._never_loads is not None:
            raise self._never_loads
        if self._worker is None:
            self._progress("starting a worker")
            surroundings = self._surroundings
            self._worker = WorkerHandle(self._policy.device, surroundings.libraries, self._policy.memory_bytes)
            self._worker.start()
        if self._loaded is None:
            self._progress("building")
            solution = self._candidate.solution
            cached = {key: str(path) for key, path in self._surroundings.cache.libraries(solution.digest).items()}
            try:
                reply = self._worker.request(Load(str(solution.path), cached), clock, "importing the solution")
                if not isinstance(reply, Loaded):
                    raise stop_for(reply)
            except CandidateStopped as stop:
                self._never_loads = stop
                raise
            self._loaded = reply
            self._keep(reply.built)
        return self._worker

    def _construct(
        self,
        worker: WorkerHandle,
        exchange: Exchange,
        state: list[StateTensor],
        constants: dict[str, Any],
        clock: Clock,
    ) -> dict[str, str]:
        """Make the candidate's instance; the reference's state names to the candidate's."""
        assert self._loaded is not None
        own = self._loaded.has_init_inputs and self._differs("get_init_inputs")
        args = () if own else exchange.args
        self._progress("constructing ModelNew")
        command = Construct(exchange.total_bytes, own, args, encode_plain(constants))
        reply = worker.request(command, clock, "constructing ModelNew", exchange.descriptor)
        if not isinstance(reply, Constructed):
            raise stop_for(reply)
        self._keep(reply.built)
        try:
            return match_state(state, reply.state, self._loaded.parameter_map)
        except MatchError as error:
            raise CandidateStopped(Status.LOAD_ERROR, str(error)) from None

    def _keep(self, built: dict[str, str]) -> None:
        assert self._worker is not None
        for key, name in built.items():
            path = self._worker.build_folder / Path(name).name
            try:
                if not self._surroundings.cache.keep(self._candidate.solution.digest, key, path):
                    logger.warning("the build %s of %s was not kept", key[:12], self._candidate.solution.name)
            except OSError as error:
                logger.warning("the build cache cannot be written, the next run builds again: %s", error)

    def _differs(self, function: str) -> bool:
        """Whether the solution defines a function of the problem in another way."""
        own = problems.function_source(self._candidate.solution.source, function)
        return own is not None and own != problems.function_source(self._candidate.problem.source, function)

    def _blank(self, case: str, constants: dict[str, Any]) -> EvaluationRecord:
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
        )

    def _stopped(self, record: EvaluationRecord, stop: CandidateStopped) -> EvaluationRecord:
        build_log = None
        if stop.build_log:
            folder = self._surroundings.log_folder
            path = folder / f"{self._candidate.solution.digest[:16]}.log"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                path.write_text(stop.build_log)
                build_log = str(path)
            except OSError as error:
                logger.warning("cannot write the build log %s: %s", path, error)
        message = stop.message + (f"\nfull log: {build_log}" if build_log else "")
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
        status = Status.PASSED
        if last.failed:
            wrong_output = any(not report.ok for report in last.outputs)
            status = Status.WRONG_OUTPUT if wrong_output else Status.WRONG_GRADIENT
            notes = [*(_explain(report, last) for report in last.failed), *notes]
        return {
            "status": status,
            "message": "\n".join(notes),
            "outputs": _worst([result.outputs for result in results]),
            "gradients": _worst([result.gradients for result in results]),
            "trials": len(results),
        }


def _worst(reports: list[list[TensorReport]]) -> tuple[TensorReport, ...]:
    """For each tensor the report with the largest share of its budget, a failing one before all others."""
    return tuple(
        max(same, key=lambda report: (not report.ok, report.share or 0.0)) for same in zip(*reports, strict=True)
    )


def _explain(report: TensorReport, result: TrialResult) -> str:
    where = f" under the {report.cotangent!r} cotangent" if report.cotangent else ""
    kind = "gradient of " if report.cotangent else ""
    words = result.words.get(report.name, report.note)
    if report.share is None:
        return f"{kind}{report.name}{where}: {words}"
    lower = result.lower_class.get(report.name)
    precision = f"; its precision is of class {lower}, which this problem does not allow" if lower else ""
    return (
        f"{kind}{report.name}{where}: relative L2 error {report.l2_error:.2e} (budget {report.l2_budget:.2e}), "
        f"maximum error {report.max_error:.2e} (budget {report.max_budget:.2e}){precision}; {words}"
    )
