"""Controls a candidate's worker, which builds and imports the solution and makes an instance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from harness.errors import HarnessError, ProblemError
from harness.judge.evaluation.builder import (
    IMPORTING,
    Refused,
    encoded,
    has_own_arguments,
    keep_builds,
    load_command,
)
from harness.judge.evaluation.machine_check import check_machine
from harness.judge.exchange.exchange import Exchange
from harness.judge.inputs.draws import Draw, init_args
from harness.judge.inputs.matching import MatchError, match_state
from harness.judge.policy import Policy, Surroundings
from harness.judge.process.candidate_stopped import CandidateStopped, UnmatchedState
from harness.judge.process.faults import Faults, stop_for
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.process.workers import Workers
from harness.project import problems
from harness.project.excerpt import own_constants
from harness.project.solutions import Candidate
from harness.records.record import EvaluationRecord, Status
from harness.wire.commands import Construct
from harness.wire.replies import Constructed, Loaded
from harness.wire.state import modes_of
from harness.wire.tensors import StateTensor
from harness.wire.values import encode_plain


class CandidateWorker:
    """Controls a candidate's worker; if it dies, the next case gets a new one.

    Args:
        candidate: The solution and its problem.
        policy: How to judge.
        surroundings: The machine.
        workers: The pool of workers.
        refused: The compiler's earlier refusals of this solution (see ``builder``).
        progress: Called with the name of each step.

    Attributes:
        handle: The handle of the process; None if there is none.
    """

    def __init__(
        self,
        candidate: Candidate,
        policy: Policy,
        surroundings: Surroundings,
        workers: Workers,
        *,
        refused: Refused,
        progress: Callable[[str], None],
    ):
        self.handle: WorkerHandle | None = None
        self._candidate = candidate
        self._policy = policy
        self._cache = surroundings.cache
        self._workers = workers
        self._refused = dict(refused)
        self._progress = progress
        self._loaded: Loaded | None = None
        self._never_loads: CandidateStopped | HarnessError | None = None

    def close(self) -> None:
        """Ends the process."""
        if self.handle is not None:
            self._refused.update(self.handle.refused)
            self.handle.close()
            self.handle = None
            self._loaded = None

    def start_ahead(self) -> None:
        """Starts the process in advance, if it is needed and can start at once."""
        if self.handle is None and self._never_loads is None and self._workers.are_ready():
            self._start()

    def ready(self, clock: Clock, faults: Faults) -> WorkerHandle:
        """Returns a worker that has imported the solution: the present one while it lives, else a new one.

        Args:
            clock: The seconds that the candidate may use.
            faults: Collects the emulator's reports.

        Raises:
            CandidateStopped: The solution cannot be built or imported, now or in an earlier case.
            HarnessError: No worker starts, or the machine can build nothing.
        """
        if self._never_loads is not None:
            raise self._never_loads
        worker = self.handle or self._start()
        if self._loaded is None:
            self._progress("starting a worker")
            try:
                worker.start()
            except HarnessError:  # it started while another candidate ran, which may have left it no memory
                worker = self._start()
                worker.start()
            if self._policy.require_confinement:
                worker.check_confined()
            self._progress("building")
            load = load_command(self._candidate.solution, self._cache, self._policy, self._refused)
            try:
                reply = worker.request(load, clock, IMPORTING)
                if not isinstance(reply, Loaded):
                    raise stop_for(reply, faults)
            except CandidateStopped as stop:
                self._never_loads = stop
                self._check_machine(stop)
                raise
            self._loaded = reply
        return worker

    def construct_command(self, exchange: Exchange, constants: dict[str, Any], first: Draw) -> Construct:
        """Returns the command that makes the candidate's instance."""
        assert self._loaded is not None
        own = has_own_arguments(self._candidate, self._loaded)
        told = encoded(self._candidate, constants) if own else encode_plain({})
        return Construct(
            exchange.total_bytes,
            own,
            exchange.args,
            told,
            modes_of(first.model),
            self._policy.tf32,
            usual_args=self._usual_args() if own and constants else "",
        )

    def _usual_args(self) -> str:
        """Returns what the problem's ``get_init_inputs`` gives without a case's constants; empty if unknown."""
        problem = self._candidate.problem
        try:
            return encode_plain(init_args(problem, problems.load(problem, {}), 0))
        except (ProblemError, TypeError, ValueError):  # it fails at that size, or gives tensors
            return ""

    def construct(
        self, exchange: Exchange, command: Construct, state: list[StateTensor], clock: Clock, faults: Faults
    ) -> dict[str, str]:
        """Makes the candidate's instance; returns a map from the reference's state names to the candidate's.

        Raises:
            CandidateStopped: The candidate fails.
            UnmatchedState: Its state does not match the reference's.
            HarnessError: The machine can build nothing.
        """
        assert self.handle is not None
        assert self._loaded is not None
        self._progress("constructing ModelNew")
        exchange.settle()
        reply = self.handle.request(command, clock, "constructing ModelNew", exchange.descriptor)
        if not isinstance(reply, Constructed):
            stop = stop_for(reply, faults)
            self._check_machine(stop)
            raise stop
        try:
            return match_state(state, reply.state, self._loaded.parameter_map)
        except MatchError as error:
            own = (
                " The solution's own get_init_inputs() must follow the problem's constants." if command.own_args else ""
            )
            raise UnmatchedState(Status.LOAD_ERROR, f"{error}{own}") from None

    def _check_machine(self, stop: CandidateStopped) -> None:
        """Checks whether the machine is at fault for a failed build.

        Raises:
            HarnessError: It is.
        """
        try:
            check_machine(stop, self._workers, self._policy.granted)
        except HarnessError as error:
            self._never_loads = error
            raise

    def keep(self) -> None:
        """Copies the libraries that the worker has built since the last call into the cache."""
        if self.handle is not None:
            keep_builds(self.handle, self._candidate.solution, self._cache)

    def _start(self) -> WorkerHandle:
        self.close()
        self.handle = self._workers.take()
        self._loaded = None
        return self.handle


def with_own_constants(record: EvaluationRecord, source: str) -> EvaluationRecord:
    """Adds a note to a failure if ``ModelNew`` reads constants of its own text that the case sets otherwise.

    Args:
        record: The case's record.
        source: The solution's text.
    """
    if record.status in (Status.PASSED, Status.BUILD_ERROR, Status.HARNESS_ERROR) or not record.constants:
        return record
    own = own_constants(source, record.constants)
    if not own:
        return record
    said = ", ".join(f"{name} = {value}" for name, value in own.items())
    case = ", ".join(f"{name} = {record.constants[name]}" for name in own)
    words = f"note: ModelNew reads {said} from its own text, but this case has {case}: read sizes off the inputs"
    return replace(record, message="\n".join(filter(None, (record.message, words))))
