"""Controls the zygote, the process from which workers are forked, and the workers' processes."""

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
from harness.project.paths import PYTHON_OPTIONS
from harness.system.processes import adopt_orphans

#: Seconds that importing torch may take, and that forking a worker may take.
IMPORT_LIMIT_S, FORK_LIMIT_S = 120.0, 30.0
#: The variables of the judge's environment that a worker gets.
KEPT_ENVIRONMENT = (
    *("PATH", "LANG", "LC_ALL", "CXX", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"),
    *("CUDA_VISIBLE_DEVICES", "OMP_WAIT_POLICY"),
)
#: The variables, by how they begin, that Python and the libraries below torch read when they start.
#: A candidate can read them, since the kernel keeps what a process starts with. Those of Python's
#: by which a candidate would run otherwise, such as ``PYTHONOPTIMIZE``, are not among them.
_READ_AT_START = (
    *("ATEN_", "CUDA_", "DNNL_", "GOMP_", "KMP_", "LC_CTYPE", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_"),
    *("PYTHONCOERCECLOCALE", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONHOME", "PYTHONNOUSERSITE"),
    *("PYTHONPYCACHEPREFIX", "PYTHONUSERBASE", "PYTHONUTF8", "PYTORCH_", "TMPDIR", "TORCH"),
)
#: Words in names of variables that no candidate may read.
_SECRET = ("AUTH", "CREDENTIAL", "KEY", "PASS", "SECRET", "TOKEN")
#: As in ``harness.worker.zygote``, which the judge does not import.
ANSWER_BYTES = 4
_LONGEST_NAP_S = 0.05


class _Died(HarnessError):
    """The zygote has ended, or hangs."""


class Process(Protocol):
    """The interface that the judge needs of a child process; ``subprocess.Popen`` has it."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status and return it."""

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless the process has ended."""


class AdoptedProcess:
    """A child that another process started, with the methods of ``subprocess.Popen``.

    Args:
        pid: Its process id, which stays valid until this object has reaped the process.

    Attributes:
        peak_bytes: The most memory that it held, in bytes; 0 until this object has reaped it.
    """

    def __init__(self, pid: int):
        self.pid = pid
        self.peak_bytes = 0
        self._status: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal; None while the process runs."""
        with self._lock:
            if self._status is None:
                try:
                    seen_off, status, used = os.wait4(self.pid, os.WNOHANG)
                    self.peak_bytes = used.ru_maxrss << 10
                # Other code in this process has reaped it, so its exit status is lost.
                except ChildProcessError:
                    seen_off, status = self.pid, 0
                if seen_off:
                    self._status = os.waitstatus_to_exitcode(status)
            return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status and return it.

        Raises:
            subprocess.TimeoutExpired: The process still runs after ``timeout`` seconds.
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
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)


class Zygote:
    """Forks workers' processes, for one thread at a time. A zygote that died is replaced.

    Using it makes this process the parent of orphans, since the zygote hands workers over as
    orphans.

    Attributes:
        living: Child processes with sessions of their own: zygotes, and workers that have not been
            closed.
        births: Lock held while a child starts that is not in ``living`` yet.
    """

    living: ClassVar[set[int]] = set()
    births: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._process: Process | None = None
        self._ours: socket.socket | None = None
        self._said: IO[bytes] | None = None
        self._is_ready = False
        self._lock = threading.RLock()

    @classmethod
    def forked(cls, number: int, ours: socket.socket, said: IO[bytes]) -> Zygote:
        """Return the controller of a zygote that this process has forked from itself.

        Args:
            number: Its process id.
            ours: This process's end of the zygote's socket pair.
            said: The file that the zygote prints to.
        """
        adopt_orphans()
        self = cls()
        self._process, self._ours, self._said = AdoptedProcess(number), ours, said
        self.living.add(number)
        return self

    @property
    def pid(self) -> int:
        """The zygote's process id; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    def start_ahead(self) -> None:
        """Start importing torch, unless the zygote is doing so or has done so.

        Raises:
            HarnessError: The zygote cannot be started.
        """
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            self.close()
            adopt_orphans()
            self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 - the file lives as long as the process
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
        """Start ``python -m harness.worker`` with a socket and a file for its output.

        Raises:
            OSError: The process cannot be started.
        """
        return subprocess.Popen(
            [sys.executable, *PYTHON_OPTIONS, "-m", "harness.worker", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd="/",
            env={**start_environment(), "PYTHONDONTWRITEBYTECODE": "1"},
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # A Ctrl-C is for the judge.
        )

    def is_ready(self) -> bool:
        """Return whether a worker can be forked without waiting."""
        with self._lock:
            if not self._is_ready and self._ours is not None and select.select([self._ours], [], [], 0)[0]:
                self.wait()
            return self._is_ready

    def wait(self) -> None:
        """Wait until a worker can be forked.

        Raises:
            HarnessError: The zygote fails.
        """
        with self._lock:
            self.start_ahead()
            if not self._is_ready:
                self._answer(IMPORT_LIMIT_S)
                self._is_ready = True

    def fork(self, channel: socket.socket, log: int) -> AdoptedProcess:
        """Fork a worker's process, which waits for its settings and has no session of its own yet.

        Args:
            channel: The worker's end of the channel, on which its settings arrive.
            log: The descriptor that the worker prints to.

        Raises:
            HarnessError: No process can be forked.
        """
        with self._lock:
            try:
                number = self._asked(channel, log)
            # The zygote died since the last request, so another one takes its place once.
            except _Died:
                number = self._asked(channel, log)
            if sys.platform != "linux":  # Here the zygote has become the worker itself.
                assert self._process is not None
                process, self._process = self._process, None
                self.close()
                return process
            return AdoptedProcess(number)

    def _asked(self, channel: socket.socket, log: int) -> int:
        """Ask for a worker; return its process id.

        Raises:
            HarnessError: No process can be forked.
        """
        self.wait()
        assert self._ours is not None
        with contextlib.suppress(OSError):  # A failure shows when no answer comes.
            socket.send_fds(self._ours, [b"w"], [channel.fileno(), log])
        return self._answer(FORK_LIMIT_S)

    def close(self) -> None:
        """End the zygote; its workers live on."""
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
        """Return the zygote's next answer: a process id, or 0 once it is ready.

        Raises:
            HarnessError: No answer comes in time, or the kernel gave no process.
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
        """Return the end of what the zygote has printed."""
        if self._said is None:
            return ""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")[-2000:]


def start_environment() -> dict[str, str]:
    """Return the variables with which a process starts that workers are forked from.

    It holds nothing else of the user's environment, which may have keys and passwords in it.
    """
    read = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_READ_AT_START) and not any(word in name.upper() for word in _SECRET)
    }
    kept = environment()
    del kept["PYTHONDONTWRITEBYTECODE"]  # a lane compiles modules for later ones, too
    return {**read, **kept}


def environment() -> dict[str, str]:
    """Return the judge's variables that every worker gets, and those that control Python's start."""
    return {
        **{name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ},
        "PYTHONPATH": str(package.FOLDER.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore:Failed to initialize NumPy:UserWarning",
    }


def worker_environment(folder: Path) -> dict[str, str]:
    """Return the variables of a worker with this folder."""
    return {
        **environment(),
        "HOME": str(folder),
        # The worker's user has no entry in /etc/passwd, which it could not read either.
        "USER": "candidate",
        "TMPDIR": str(folder),
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
