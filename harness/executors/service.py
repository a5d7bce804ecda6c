"""The service: the driver process behind ``harness.Evaluator``.

Usage: ``python -m harness.executors.service DESCRIPTOR LIFELINE``. The service owns the store and
starts all other processes. The program itself has one child and does not import torch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from harness.device.devices import several
from harness.errors import HarnessError, UsageError
from harness.executors import child_main, job_loop
from harness.executors.lanes import Lanes, Wanted, lanes_on
from harness.executors.plan import CaseChoice, Job, Planner
from harness.executors.protocol import Failure, Request, Response, Service, Serving, Withdrawal
from harness.executors.result_cache import ResultCache
from harness.executors.scheduler import Asked
from harness.judge.policy import Policy
from harness.project.solutions import Candidate, KnownProblems, read_solution, select
from harness.records.identity import new_run_name
from harness.records.record import EvaluationRecord
from harness.records.store import Store
from harness.system.scratch import scratch_folder


class Requests:
    """The program's requests as jobs; iterable once.

    Args:
        link: The link to the program; invalid requests get their response at once.
        service: The settings to judge by.
        on_cpu: Whether the emulator judges, which only small cases fit.
        folder: An empty folder for the files of source texts.
    """

    def __init__(self, link: Connection, service: Service, on_cpu: bool, folder: Path):
        self._link = link
        self._service = service
        self._on_cpu = on_cpu
        self._folder = folder.resolve()
        self._problems = KnownProblems(service.root)
        self._found: dict[str, list[EvaluationRecord]] = {}
        self._errors: dict[str, HarnessError] = {}
        self._arrived: deque[Request] = deque()
        self._withdrawn: list[str] = []
        self.is_over = False

    def fileno(self) -> int:
        """Returns a descriptor that is readable when a message or the end has arrived."""
        return self._link.fileno()

    def is_ready(self) -> bool:
        """Returns whether a request or the end has arrived."""
        self.read()
        return bool(self._arrived) or self.is_over

    def withdrawn(self) -> Sequence[str]:
        """Returns the tags of jobs that were read as withdrawn since the last call."""
        tags, self._withdrawn = self._withdrawn, []
        return tags

    def read(self) -> None:
        """Reads all messages that have arrived, so that the program never waits to send one."""
        while not self.is_over and self._link.poll():
            try:
                said: Request | Withdrawal = self._link.recv()
            except (EOFError, ConnectionResetError):
                self.is_over = True
                return
            if isinstance(said, Request):
                self._arrived.append(said)
            elif str(said.number) in self._found:
                self._withdrawn.append(str(said.number))
            else:
                self._arrived = deque(request for request in self._arrived if request.number != said.number)

    def __iter__(self) -> Iterator[Asked]:
        while True:
            while not self.is_ready():
                self._link.poll(None)
            if not self._arrived:
                return
            request = self._arrived.popleft()
            try:
                job = self._job(request)
            except (HarnessError, OSError) as error:
                told = error if isinstance(error, HarnessError) else HarnessError(f"cannot read the request: {error}")
                self._link.send(Response(request.number, (), told))
                yield None
                continue
            self._found[str(request.number)] = []
            yield job

    def add(self, outcome: job_loop.KeptRecord | job_loop.Fault) -> None:
        """Collects the outcome of a case for its response."""
        assert outcome.tag is not None
        if isinstance(outcome, job_loop.Fault):
            self._errors[outcome.tag] = outcome.error
        else:
            self._found[outcome.tag].append(outcome.record)

    def answer(self, job: Job) -> None:
        """Sends the response for a finished candidate and forgets the candidate."""
        assert job.tag is not None
        records, error = self._found.pop(job.tag), self._errors.pop(job.tag, None)
        if job.candidate.solution.path.parent == self._folder:
            job.candidate.solution.path.unlink(missing_ok=True)
        self._link.send(Response(int(job.tag), tuple(records), error))

    def _job(self, request: Request) -> Job:
        problem = self._problems.find(request.problem) if request.problem is not None else None
        if request.source is None:
            found = select(self._service.root, [request.path or ""], None if problem is None else str(problem.path))
            if len(found) != 1:
                raise UsageError(f"{request.path!r} names {len(found)} solutions; ask for one at a time")
            (candidate,) = found
        elif problem is None:
            raise UsageError("name the problem that this source solves")
        else:
            file = self._folder / f"candidate_{request.number}.py"
            file.write_text(request.source, encoding="utf-8", errors="surrogatepass")
            name = request.name or f"candidate {request.number}"
            candidate = Candidate(problem, read_solution(file, name, name))
        choice = CaseChoice(request.cases, request.constants, is_main=not request.every_case)
        planner = Planner(choice, self._on_cpu, self._service.config)
        job = planner.job(candidate, str(request.number))
        return replace(
            job,
            trials=request.trials,
            fresh=request.fresh,
            to_beat=request.to_beat,
            limits_of_kernels=request.limits_of_kernels,
        )


def serve(link: Connection) -> None:
    """Judges the program's requests until the program closes its end.

    Raises:
        HarnessError: The device, its tools or the store is not available.
    """
    service: Service = link.recv()
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store(service.home, writable=True))
        lanes = stack.enter_context(_lanes(service))
        policy = Policy.settled(service.config, lanes.device)
        folder = stack.enter_context(scratch_folder("harness-service-"))
        requests = Requests(link, service, lanes.device == "cpu", folder)
        ledger = ResultCache(store, new_run_name(), service.fresh, service.config.seed)
        link.send(Serving(lanes.device, len(lanes.free) + 2 * lanes.most_builders))
        outcomes = job_loop.run(
            requests, policy, lanes, ledger, lambda _: None, source=requests, done=requests.answer, withdrawals=requests
        )
        for outcome in stack.enter_context(contextlib.closing(outcomes)):
            requests.add(outcome)


def _lanes(service: Service) -> contextlib.AbstractContextManager[Lanes]:
    """Opens the lanes on this machine's devices or on a cluster."""
    if service.cluster is not None:
        from harness.executors.cluster import lanes_on_cluster

        return lanes_on_cluster(service.cluster, service.device, service.home, service.config.timing)
    return lanes_on(several(service.device, service.lanes or 1), Wanted(service.home, service.config.timing))


def _end_with(lifeline: int) -> None:
    """Waits until the program has gone, then sends this process SIGTERM."""
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Serves on the descriptors that the command line names, and returns the exit code."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    descriptor, lifeline = map(int, sys.argv[1:])
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    with Connection(descriptor) as link:
        return child_main.run(lambda: serve(link), lambda error: link.send(Failure(error)))


if __name__ == "__main__":
    child_main.leave(main())
