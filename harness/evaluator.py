"""The harness as a library: a program holds an ``Evaluator`` open and asks it about candidates.

Everything that judges runs in processes of its own. The program's process imports no torch by it, gets no signal
handler, and one child: what it has on a GPU and what other children it has stay its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from harness import baselines as known_baselines
from harness.errors import HarnessError, UsageError
from harness.executors.link import QUIET, Failure, Request, Response, Service, Serving
from harness.executors.plan import Time
from harness.judge.handle import Limits
from harness.judge.integrity import switched
from harness.paths import harness_home, import_path, project_root
from harness.records import EvaluationRecord, Status

#: Longest that the judge may take to end its workers.
END_LIMIT_S = 60.0


@dataclass(frozen=True)
class Entry:
    """A candidate to ask about.

    Attributes:
        candidate: A solution's text (anything with a line break in it), its file, or ``problem/variant``.
        problem: Name or file of the problem that it solves; not needed where its file's folder says it.
        cases: Names of the problem's cases; none means ``full`` on a GPU, and the smallest on the CPU.
        constants: Constants of the problem to replace, which make a case of their own; exclude ``cases``.
        tag: Whatever the answer is to be known by.
    """

    candidate: str | os.PathLike[str]
    problem: str | os.PathLike[str] | None = None
    cases: Sequence[str] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    tag: Any = None


@dataclass(frozen=True)
class Answer:
    """What came of a candidate.

    Attributes:
        entry: What was asked.
        records: A record for each case that was judged; they are in the store, too.
        error: Why there are none, or not all: no such problem or case, or a problem that does not run.
    """

    entry: Entry
    records: tuple[EvaluationRecord, ...]
    error: HarnessError | None = None

    @property
    def has_passed(self) -> bool:
        """Whether it passed on every case."""
        return self.error is None and all(record.status is Status.PASSED for record in self.records)


class Evaluator:
    """Judges candidates; a context manager. One thread at a time may use it.

    Args:
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N``, several as ``cuda:0,2``, or ``all``.
        home: Folder of the store and the build cache; as ``--home`` by default.
        root: Folder that holds ``problems`` and ``solutions``; as ``--root`` by default.
        timeout_s: Seconds that a candidate may run on a case; None for what its problem says, else 60.
        build_timeout_s: Seconds that its builds may take; None for what its problem says, else 300.
        forward_only: Judge outputs alone, no gradients.
        timed: Whether speed is measured, on a GPU.
        baselines: What to time against beside eager (``harness.baselines``).
        relaxed: Accept errors up to the tolerances of torch's own tests.
        refuse: Rules to enforce that are only reported (``evaluate --rules`` lists them).
        rules: Other modes of rules by name: ``off``, ``report`` or ``enforce``.
        require_confinement: Run nothing that is not confined in full.
        fresh: Judge again what the store has an answer for.
        seed: Secret of an earlier run, in hex, to repeat its draws.
        lanes: How many candidates are judged side by side on the CPU.

    Raises:
        UsageError: An argument means nothing.
        HarnessError: The device, its tools or the store cannot be had.
    """

    def __init__(
        self,
        device: str = "auto",
        home: str | os.PathLike[str] | None = None,
        *,
        root: str | os.PathLike[str] | None = None,
        timeout_s: float | None = None,
        build_timeout_s: float | None = None,
        forward_only: bool = False,
        timed: bool = True,
        baselines: Sequence[str] = (),
        relaxed: bool = False,
        refuse: Sequence[str] = (),
        rules: Mapping[str, str] | None = None,
        require_confinement: bool = False,
        fresh: bool = False,
        seed: str | None = None,
        lanes: int = 1,
    ):
        given = {"run_s": timeout_s, "build_s": build_timeout_s}
        limits = Limits(60.0, 300.0)._replace(**{name: value for name, value in given.items() if value is not None})
        service = Service(
            device=device,
            lanes=lanes,
            home=harness_home(None if home is None else os.fspath(home)),
            root=project_root(None if root is None else os.fspath(root)),
            time=Time(limits, frozenset(name for name, value in given.items() if value is not None)),
            forward_only=forward_only,
            is_timed=timed,
            require_confinement=require_confinement,
            is_relaxed=relaxed,
            rules=switched([f"{name}={mode}" for name, mode in (rules or {}).items()], refuse),
            check="",
            baselines=known_baselines.chosen(baselines),
            fresh=fresh,
            seed=seed,
        )
        self._asked: dict[int, Entry] = {}
        self._answered: dict[int, Answer] = {}
        self._numbers = 0
        self._process, self._link, self._lifeline = _started()
        try:
            self._link.send(service)
            serving: Serving = self._receive()
        except BaseException:
            self.close()
            raise
        self.device = serving.device
        self._room = serving.room

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def evaluate(
        self,
        candidate: str | os.PathLike[str],
        problem: str | os.PathLike[str] | None = None,
        *,
        cases: Sequence[str] = (),
        constants: Mapping[str, Any] | None = None,
        tag: Any = None,
    ) -> Answer:
        """Judge a candidate, and wait for that; the arguments are those of ``Entry``.

        Raises:
            UsageError: The problem or a case is unknown, or there is no such file.
            ProblemError: The problem does not run.
            HarnessError: The judge's process has ended.
        """
        number = self._ask(Entry(candidate, problem, cases, constants or {}, tag))
        while number not in self._answered:
            self._hear()
        answer = self._answered.pop(number)
        if answer.error is not None:
            raise answer.error
        return answer

    def stream(self, entries: Iterable[Entry], ahead: int | None = None) -> Iterator[Answer]:
        """Judge candidates, and have each answer as soon as it is there, in whatever order.

        What is wrong with an entry is in its answer, and ends nothing.

        Args:
            entries: What to ask; gone through as there is room, so it may be endless.
            ahead: How many entries may be taken before the first of them is answered, beside that one; 0 where what
                comes next depends on each answer. As many as keep all processors busy by default.

        Raises:
            HarnessError: The judge's process has ended.
        """
        room = self._room if ahead is None else 1 + ahead
        coming = iter(entries)
        own: set[int] = set()
        is_over = False
        while True:
            while len(own) < room and not is_over:
                entry = next(coming, None)
                if entry is None:
                    is_over = True
                else:
                    own.add(self._ask(entry))
            if not own:
                return
            while not (there := own & self._answered.keys()):
                self._hear()
            for number in sorted(there):
                own.discard(number)
                yield self._answered.pop(number)

    def close(self) -> None:
        """End the judge and all its processes; what is finished is in the store."""
        if self._lifeline < 0:
            return
        os.close(self._lifeline)
        self._lifeline = -1
        self._link.close()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, entry: Entry) -> int:
        if self._lifeline < 0:
            raise HarnessError("this evaluator is closed")
        self._numbers += 1
        source, path = _source_or_path(entry.candidate)
        problem = None if entry.problem is None else os.fspath(entry.problem)
        if entry.cases and entry.constants:
            raise UsageError("cases and constants exclude each other: constants make a case of their own")
        self._asked[self._numbers] = entry
        request = Request(self._numbers, source, path, problem, tuple(entry.cases), dict(entry.constants))
        with contextlib.suppress(BrokenPipeError):  # that shows when the answer is awaited
            self._link.send(request)
        return self._numbers

    def _hear(self) -> None:
        response: Response = self._receive()
        entry = self._asked.pop(response.number)
        self._answered[response.number] = Answer(entry, response.records, response.error)

    def _receive(self) -> Any:
        try:
            said = self._link.recv()
        except (EOFError, ConnectionResetError):
            code = self._process.wait()
            raise HarnessError(f"the judge's process has ended ({code}); what it finished is in the store") from None
        if isinstance(said, Failure):
            raise said.error
        return said


def _source_or_path(candidate: str | os.PathLike[str]) -> tuple[str | None, str | None]:
    if isinstance(candidate, str) and "\n" in candidate:
        return candidate, None
    return None, os.fspath(candidate)


def _started() -> tuple[subprocess.Popen[bytes], Connection, int]:
    """The judge's process, the link to it, and a descriptor that it ends with."""
    ours, theirs = socket.socketpair()
    watched, lifeline = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, *QUIET, "-m", "harness.executors.service", str(theirs.fileno()), str(watched)],
            stdin=subprocess.DEVNULL,
            stdout=2,
            env={**os.environ, "PYTHONPATH": import_path()},
            pass_fds=[theirs.fileno(), watched],
        )
    except OSError as error:
        ours.close()
        os.close(lifeline)
        raise HarnessError(f"cannot start the judge's process: {error}") from None
    finally:
        theirs.close()
        os.close(watched)
    return process, Connection(ours.detach()), lifeline
