"""The harness as a library: an ``Evaluator`` judges the candidates that a program gives it.

All judging runs in other processes. The evaluator adds one child to the program's process. It does
not import torch there, install signal handlers, or touch the program's GPU state or its other
children.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from harness.emulator.architectures import DEFAULT
from harness.entries import Answer, Entry, request_of
from harness.errors import AnswerError, HarnessError, UsageError
from harness.evaluator_arguments import (
    check_choice,
    check_emulated,
    check_flags,
    check_lanes_and_seed,
    check_names,
    check_rules,
    check_seconds,
    check_text,
    check_trials,
)
from harness.executors.protocol import Cluster, Failure, Response, Service, Serving, Withdrawal
from harness.judge.integrity import parse_rules
from harness.project.paths import PYTHON_OPTIONS, harness_home, import_path, project_root
from harness.records import baselines as known_baselines
from harness.records.run_config import ALLOW, FORBID, KERNELBENCH, RELAXED, STRICT, RunConfig
from harness.system.streams import open_descriptors

LOCAL, RAY = "local", "ray"
#: Timeout in seconds for the judge to end its workers.
END_LIMIT_S = 60.0
_LOG = logging.getLogger(__name__)


class Evaluator:
    """Judges candidates in a process of its own; a context manager.

    Several threads may use an evaluator at the same time.

    Args:
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:N``, several as ``cuda:0,2``, or ``all``.
        home: Folder of the store and the build cache; the default is that of ``--home``.
        root: Folder that holds ``problems`` and ``solutions``; the default is that of ``--root``.
        timeout_s: Timeout in seconds for a candidate's run on a case; None for the problem's
            timeout, else 60.
        build_timeout_s: Timeout in seconds for a candidate's builds; None for the problem's
            timeout, else 300.
        forward_only: Whether to judge outputs only, without gradients.
        timed: Whether to measure speed on a GPU.
        baselines: Baselines to time against in addition to eager (``harness.records.baselines``).
        relaxed: Whether to accept errors up to the tolerances of torch's own tests.
        preset: ``kernelbench`` to judge outputs only and to add KernelBench's own verdict, or None.
        tf32: ``allow`` or ``forbid`` TF32 in float32 products; None for what torch's flags say.
        refuse: Names of rules to enforce instead of report (``evaluate --rules`` lists them).
        rules: Modes of rules by name: ``off``, ``report`` or ``enforce``.
        require_confinement: Whether to refuse to run a candidate without full confinement.
        compat: Whether code for an older torch may build.
        check: Whether to check every access of the kernels, as ``check`` does; only on the CPU.
        exhaustive: Whether ``check`` also runs kernels in all orders of what synchronises their threads.
        fresh: Whether to ignore the store's answers and judge again.
        seed: Secret of an earlier run, in hex, to repeat its draws.
        trials: Trials of each case; None for the usual number. With fewer, the judge also leaves out
            the further draws and the checks of robustness.
        lanes: Number of candidates that the CPU judges in parallel; None for one, and on a cluster
            for one lane per two processors.
        executor: ``local`` to judge on this machine, or ``ray`` for a Ray cluster.
        address: Address of the Ray cluster; None for that of ``RAY_ADDRESS``, else a cluster that
            starts on this machine.

    Attributes:
        device: The device that judges: ``cpu`` or ``cuda:N``; ``cuda`` for several GPUs.
        room: Number of entries that keep all processors busy.

    Raises:
        UsageError: An argument is invalid.
        HarnessError: The device, its tools or the store is not available.
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
        preset: str | None = None,
        tf32: str | None = None,
        refuse: Sequence[str] = (),
        rules: Mapping[str, str] | None = None,
        require_confinement: bool = False,
        compat: bool = False,
        check: bool = False,
        exhaustive: bool = False,
        fresh: bool = False,
        seed: str | None = None,
        trials: int | None = None,
        lanes: int | None = None,
        executor: str = LOCAL,
        address: str | None = None,
    ):
        check_text(device=device, home=home, root=root, address=address)
        check_seconds(timeout_s=timeout_s, build_timeout_s=build_timeout_s)
        check_flags(
            forward_only=forward_only, timed=timed, relaxed=relaxed, require_confinement=require_confinement,
            compat=compat, check=check, exhaustive=exhaustive, fresh=fresh,
        )  # fmt: skip
        check_emulated(check, exhaustive, device)
        check_names(baselines=baselines, refuse=refuse)
        check_rules(rules)
        check_lanes_and_seed(lanes, seed)
        check_trials(trials)
        check_choice("preset", preset, (KERNELBENCH,))
        check_choice("tf32", tf32, (ALLOW, FORBID))
        check_choice("executor", executor, (LOCAL, RAY))
        config = RunConfig(
            timeout_s=timeout_s,
            build_timeout_s=build_timeout_s,
            forward_only=forward_only,
            preset=preset or "",
            tf32=tf32 or "",
            timing=timed,
            precision=RELAXED if relaxed else STRICT,
            rules=parse_rules([f"{name}={mode}" for name, mode in (rules or {}).items()], refuse),
            baselines=known_baselines.chosen(baselines),
            require_confinement=require_confinement,
            compat=compat,
            check=DEFAULT if check else "",
            exhaustive=exhaustive,
            seed=seed,
            trials=trials,
        )
        service = Service(
            device=device,
            lanes=lanes,
            cluster=None if executor == LOCAL else Cluster(address, lanes),
            home=harness_home(None if home is None else os.fspath(home)),
            root=project_root(None if root is None else os.fspath(root)),
            config=config,
            fresh=fresh,
        )
        self._home = service.home
        self._asked: dict[int, Entry] = {}
        self._futures: dict[int, Future[Answer]] = {}
        self._answered: dict[int, Answer] = {}
        self._numbers = itertools.count(1)
        self._sending, self._changed = threading.Lock(), threading.Condition()
        self._end: HarnessError | None = None
        self._listener: threading.Thread | None = None
        self._owner = os.getpid()
        self._process, self._link, self._lifeline = _started()
        _open.add(self)
        try:
            with contextlib.suppress(BrokenPipeError):  # ``_receive`` reports the judge's end
                self._link.send(service)
            serving: Serving = self._receive()
        except BaseException:
            self.close()
            raise
        self.device = serving.device
        self.room = serving.room
        self._listener = threading.Thread(target=self._listen, name="harness-evaluator", daemon=True)
        self._listener.start()

    @property
    def is_alive(self) -> bool:
        """True until the evaluator is closed or its judge's process ends."""
        return self._lifeline >= 0 and self._end is None

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
        every_case: bool = False,
        is_answer: bool = False,
    ) -> Answer:
        """Judges a candidate and returns the answer; the arguments are those of ``Entry``.

        Raises:
            UsageError: The problem or a case is unknown, or there is no such file.
            AnswerError: A model's answer holds no complete code.
            ProblemError: The problem does not run.
            HarnessError: The judge's process has ended.
        """
        entry = Entry(candidate, problem, cases, constants or {}, tag, every_case=every_case, is_answer=is_answer)
        number = self._ask(entry)
        try:
            (answer,) = self._awaited({number})
        except BaseException:
            self._forget({number})
            raise
        if answer.error is not None:
            raise answer.error
        return answer

    def submit(self, entry: Entry) -> Future[Answer]:
        """Judges a candidate and returns a future of its answer at once.

        An invalid entry gives an answer with its error. If the future is cancelled, the judge drops
        the candidate; if a lane judges it already, the lane's processes end.

        Raises:
            HarnessError: The evaluator is closed or belongs to another process. The future raises
                it if the judge's process ends later.
        """
        future: Future[Answer] = Future()
        try:
            number = self._ask(entry, future)
        except (UsageError, AnswerError) as error:
            future.set_result(Answer(entry, (), error))
        else:
            future.add_done_callback(lambda done: self._withdraw(number) if done.cancelled() else None)
        return future

    def stream(self, entries: Iterable[Entry], ahead: int | None = None) -> Iterator[Answer]:
        """Judges candidates and yields each answer as soon as it is ready, in any order.

        An invalid entry does not end the stream: its answer holds the error. If ``entries`` raises
        an exception, the stream first yields the answers to the earlier entries. If the program
        leaves the stream early, the judge still finishes the entries that it has, for the store.

        Args:
            entries: The entries to judge. The stream reads them as there is room, so the iterable
                may be endless.
            ahead: Number of further entries to read before the first one is answered. Use 0 if the
                next entry depends on each answer. The default keeps all processors busy.

        Raises:
            UsageError: ``ahead`` is not a whole number of 0 or more.
            HarnessError: The judge's process has ended, or the evaluator is closed.
        """
        if ahead is not None and not (isinstance(ahead, int) and ahead >= 0):
            raise UsageError(f"ahead must be a whole number of 0 or more, not {ahead!r}")
        room = self.room if ahead is None else 1 + ahead
        coming = iter(entries)
        own: set[int] = set()
        is_over, failure = False, None
        try:
            while True:
                while len(own) < room and not is_over:
                    try:
                        entry = next(coming)
                    except StopIteration:
                        is_over = True
                        break
                    except Exception as error:
                        is_over, failure = True, error
                        break
                    try:
                        own.add(self._ask(entry))
                    except (UsageError, AnswerError) as error:
                        yield Answer(entry, (), error)
                if not own:
                    break
                yield from self._awaited(own)
        finally:
            self._forget(own)
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Ends the judge and all its processes. Finished records are in the store."""
        if self._lifeline < 0 or self._owner != os.getpid():
            return
        lifeline, self._lifeline = self._lifeline, -1
        self._process.terminate()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(lifeline)  # not earlier: that would interrupt the judge's cleanup
        if self._listener is not None and self._listener is not threading.current_thread():
            self._listener.join()
        if self._sending.acquire(blocking=False):  # a signal handler may have interrupted ``_ask``
            with contextlib.closing(self._link):
                self._sending.release()

    def _leave(self) -> None:
        """Closes, in a forked process, the descriptors that would keep the judge alive."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._link.close()
        self._lifeline = -1

    def _ask(self, entry: Entry, future: Future[Answer] | None = None) -> int:
        """Sends a request and returns its number; the answer goes to the future, if there is one.

        Raises:
            UsageError: The entry is invalid.
            AnswerError: The model's answer holds no complete code.
            HarnessError: The evaluator is closed, or belongs to another process.
        """
        self._check_owner()
        number = next(self._numbers)
        request = request_of(number, entry, self._home)
        with self._sending:
            if self._lifeline < 0:
                raise HarnessError("this evaluator is closed")
            with self._changed:
                if future is not None and self._end is not None:
                    raise type(self._end)(str(self._end))
                self._asked[number] = entry
                if future is not None:
                    self._futures[number] = future
            try:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # ``_awaited`` reports it
                    self._link.send(request)
            except BaseException:  # a signal handler raised: half a request would garble the next ones
                self._process.terminate()
                raise
        return number

    def _check_owner(self) -> None:
        if self._owner != os.getpid():
            raise HarnessError("this evaluator belongs to the process that opened it: open one in each process")

    def _awaited(self, numbers: set[int]) -> list[Answer]:
        """Waits for answers, returns those that are ready and removes their numbers from the set.

        Raises:
            HarnessError: The judge's process has ended.
        """
        self._check_owner()
        if threading.current_thread() is self._listener:
            raise HarnessError("a callback of a future cannot wait for a verdict: submit, or wait in another thread")
        with self._changed:
            while not (there := numbers & self._answered.keys()):
                if self._end is not None:
                    raise type(self._end)(str(self._end))
                self._changed.wait()
            numbers -= there
            return [self._answered.pop(number) for number in sorted(there)]

    def _forget(self, numbers: set[int]) -> None:
        """Drops the answers to these requests, because no caller waits for them."""
        if self._owner != os.getpid():
            return
        with self._changed:
            for number in numbers:
                for kept in (self._asked, self._answered, self._futures):
                    kept.pop(number, None)

    def _withdraw(self, number: int) -> None:
        """Tells the judge that nobody waits for an answer, in a thread: the judge may not read just now."""
        self._forget({number})
        if self._owner == os.getpid():
            threading.Thread(target=self._send_withdrawal, args=(number,), daemon=True).start()

    def _send_withdrawal(self, number: int) -> None:
        with self._sending:
            if self._lifeline >= 0:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the judge has ended
                    self._link.send(Withdrawal(number))

    def _listen(self) -> None:
        """Collects the judge's responses in a thread until the judge ends."""
        while True:
            try:
                response: Response = self._receive()
            except HarnessError as error:
                with self._changed:
                    self._end = end = error if self._lifeline >= 0 else HarnessError("this evaluator is closed")
                    left, self._futures = self._futures, {}
                    self._changed.notify_all()
                for future in left.values():
                    _settle(future, type(end)(str(end)))
                return
            with self._changed:
                entry, waiting = self._asked.pop(response.number, None), self._futures.pop(response.number, None)
                answer = None if entry is None else Answer(entry, response.records, response.error)
                if answer is not None and waiting is None:
                    self._answered[response.number] = answer
                self._changed.notify_all()
            # Outside the lock: a callback of the future may ask for more.
            if answer is not None and waiting is not None:
                _settle(waiting, answer)

    def _receive(self) -> Any:
        """Returns the judge's next message.

        Raises:
            HarnessError: The judge has ended, or its message cannot be read.
        """
        try:
            said = self._link.recv()
        except (EOFError, OSError):
            code = self._process.wait()
            raise HarnessError(f"the judge's process has ended ({code}); the store has the finished results") from None
        except (pickle.PickleError, AttributeError, ImportError, LookupError, TypeError, ValueError) as error:
            raise HarnessError(f"cannot read the message of the judge's process: {error}") from error
        if isinstance(said, Failure):
            raise said.error
        return said


def _settle(future: Future[Answer], result: Answer | HarnessError) -> None:
    """Gives a future its result. What a callback of it raises is logged: others still wait."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        if isinstance(result, HarnessError):
            future.set_exception(result)
        else:
            future.set_result(result)
    except BaseException:  # such as SystemExit; the future itself logs any other
        _LOG.exception("a callback of a future of %s failed", Evaluator.__name__)


def _leave_all() -> None:
    for evaluator in _open:
        evaluator._leave()


#: The open evaluators of this process.
_open: weakref.WeakSet[Evaluator] = weakref.WeakSet()
os.register_at_fork(after_in_child=_leave_all)


def _started() -> tuple[subprocess.Popen[bytes], Connection, int]:
    """Starts the judge's process.

    Returns:
        The process, the link to it, and its lifeline: when that descriptor closes, the process
        ends.

    Raises:
        HarnessError: The process cannot start.
    """
    open_descriptors()
    ours, theirs = socket.socketpair()
    watched, lifeline = os.pipe()
    try:
        process = _service_process(theirs.fileno(), watched)
    except OSError as error:
        ours.close()
        os.close(lifeline)
        raise HarnessError(f"cannot start the judge's process: {error}") from None
    finally:
        theirs.close()
        os.close(watched)
    return process, Connection(ours.detach()), lifeline


def _service_process(theirs: int, watched: int) -> subprocess.Popen[bytes]:
    """Starts the judge's process with its end of the link and of the lifeline.

    Raises:
        OSError: The process cannot start.
    """
    return subprocess.Popen(
        [sys.executable, *PYTHON_OPTIONS, "-m", "harness.executors.service", str(theirs), str(watched)],
        stdin=subprocess.DEVNULL,
        stdout=2,
        env={**os.environ, "PYTHONPATH": import_path()},
        pass_fds=[theirs, watched],
        process_group=0,  # only the program gets Ctrl-C
    )
