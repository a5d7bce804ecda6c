"""The judge's hold on the process that workers are forked of, and on a worker's process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, ClassVar, Protocol

from harness import package
from harness.errors import HarnessError
from harness.system.processes import adopt_orphans

#: Longest that importing torch may take, and that a worker may take to be forked.
IMPORT_LIMIT_S, FORK_LIMIT_S = 120.0, 30.0
#: Of the judge's environment all that a worker gets; a zygote has no more.
KEPT_ENVIRONMENT = (
    *("PATH", "LANG", "LC_ALL", "CXX", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"),
    *("CUDA_VISIBLE_DEVICES", "OMP_WAIT_POLICY"),
)
#: As in ``harness.worker.zygote``, which the judge does not import.
ANSWER_BYTES = 4
_LONGEST_NAP_S = 0.05


class _Died(HarnessError):
    """The process that workers are forked of has ended, or hangs."""


class Process(Protocol):
    """What the judge needs of a child process; ``subprocess.Popen`` has it."""

    pid: int

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, as soon as there is one."""

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""


class AdoptedProcess:
    """A child that this process has not started itself; the methods are those of ``subprocess.Popen``.

    Args:
        pid: Its number, which stays its own until it has been seen off here.
    """

    def __init__(self, pid: int):
        self.pid = pid
        self._status: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        with self._lock:
            if self._status is None:
                try:
                    seen_off, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # somebody else in this process has seen it off: how it ended is lost
                    seen_off, status = self.pid, 0
                if seen_off:
                    self._status = os.waitstatus_to_exitcode(status)
            return self._status

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, as soon as there is one.

        Raises:
            subprocess.TimeoutExpired: There is none after so many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        nap = 0.0005
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP_S)
        return status

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)


class Zygote:
    """Starts workers' processes; a thread at a time. One that has died is replaced.

    This process becomes the parent of orphans by it, since workers are handed over as such.

    Attributes:
        living: Processes of ours that have sessions of their own: these, and workers that have not been closed.
        births: Held while one is started that is not in there yet.
    """

    living: ClassVar[set[int]] = set()
    births: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._process: Process | None = None
        self._ours: socket.socket | None = None
        self._said: IO[bytes] | None = None
        self._is_ready = False
        self._lock = threading.RLock()

    @property
    def pid(self) -> int:
        """Its number; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    def start_ahead(self) -> None:
        """Have it import torch from now on, unless it does or has.

        Raises:
            HarnessError: It cannot be started.
        """
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            self.close()
            adopt_orphans()
            self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
            try:
                with self.births:
                    self._process = self._started(theirs, self._said)
                    self.living.add(self._process.pid)
            except OSError as error:
                self.close()
                raise HarnessError(f"cannot start a worker process: {error}") from None
            finally:
                theirs.close()

    def _started(self, theirs: socket.socket, said: IO[bytes]) -> Process:
        """A process that does as ``python -m harness.worker``; its end of a socket pair, and where it prints to.

        Raises:
            OSError: It cannot be started.
        """
        return subprocess.Popen(
            [sys.executable, "-m", "harness.worker", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd="/",  # nothing that lies where the user happens to be is imported
            env=environment(),
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # a Ctrl-C is the judge's
        )

    def is_ready(self) -> bool:
        """Whether a worker can be forked without waiting."""
        with self._lock:
            if not self._is_ready and self._ours is not None and select.select([self._ours], [], [], 0)[0]:
                self.wait()
            return self._is_ready

    def wait(self) -> None:
        """Wait until a worker can be forked.

        Raises:
            HarnessError: It does not come to that.
        """
        with self._lock:
            self.start_ahead()
            if not self._is_ready:
                self._answer(IMPORT_LIMIT_S)
                self._is_ready = True

    def fork(self, channel: socket.socket, log: int) -> Process:
        """A worker's process, which waits for its settings on its channel; it is in no session of its own until then.

        Args:
            channel: The worker's end.
            log: A descriptor that it prints to.

        Raises:
            HarnessError: There is none.
        """
        with self._lock:
            try:
                number = self._asked(channel, log)
            except _Died:  # since it was last asked, by whomever: once more, of another one
                number = self._asked(channel, log)
            if sys.platform != "linux":  # it has become the worker itself
                assert self._process is not None
                process, self._process = self._process, None
                self.close()
                return process
            return AdoptedProcess(number)

    def _asked(self, channel: socket.socket, log: int) -> int:
        """A worker's number.

        Raises:
            HarnessError: There is none.
        """
        self.wait()
        assert self._ours is not None
        with contextlib.suppress(OSError):  # that shows when it does not answer
            socket.send_fds(self._ours, [b"w"], [channel.fileno(), log])
        return self._answer(FORK_LIMIT_S)

    def close(self) -> None:
        """End it; its workers live on."""
        with self._lock:
            self._kill()
            for held in (self._ours, self._said):
                if held is not None:
                    held.close()
            self._process = self._ours = self._said = None

    def _kill(self) -> None:
        self._is_ready = False
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self.living.discard(self._process.pid)

    def _answer(self, seconds: float) -> int:
        """Its next answer: a process's number, or 0 once it is ready.

        Raises:
            HarnessError: It gives none in time, or says that the kernel gave no process.
        """
        assert self._ours is not None
        self._ours.settimeout(seconds)
        try:
            told = self._ours.recv(ANSWER_BYTES)
        except TimeoutError:
            told, why = b"", f"no answer within {seconds:g} s"
        except OSError as error:
            told, why = b"", str(error)
        else:
            why = "it ended"
        if not told:
            words = self._words()
            self.close()
            raise _Died(f"the worker process did not start: {why}\n{words}".rstrip())
        number = int.from_bytes(told, "big", signed=True)
        if number < 0:
            raise HarnessError(f"cannot start a worker process: {os.strerror(-number)}")
        return number

    def _words(self) -> str:
        """The end of what it has printed."""
        if self._said is None:
            return ""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")[-2000:]


def environment() -> dict[str, str]:
    """What every worker has of the judge's environment, and what decides how Python starts."""
    return {
        **{name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ},
        "PYTHONPATH": str(package.FOLDER.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore:Failed to initialize NumPy:UserWarning",
    }


def worker_environment(folder: Path) -> dict[str, str]:
    """The variables of a worker with this folder."""
    return {
        **environment(),
        "HOME": str(folder),
        "USER": "candidate",  # whoever it runs as has no entry in /etc/passwd, which could not be read either
        "TMPDIR": str(folder),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
    }
