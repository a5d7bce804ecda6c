"""Proposers without an endpoint: a program that answers prompts, and a folder of answers."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path

from harness.answers.samples import SUFFIXES
from harness.errors import UsageError
from harness.generation.attempts import (
    LONGEST_WAIT_S,
    MAX_ANSWER_BYTES,
    Outcome,
    ProposerFailed,
    Reply,
    Tokens,
    Turn,
    estimated_tokens,
)
from harness.system.files import read_regular
from harness.system.text import one_line, shortened

_MAX_WORDS = 300


class Program:
    """A program that reads a prompt on stdin and writes its answer to stdout; a ``Proposer``.

    Args:
        command: The program with its arguments, as in a shell. No shell runs it.
        timeout_s: Seconds that an answer may take.

    Raises:
        UsageError: The command is empty or cannot be split.
    """

    def __init__(self, command: str, timeout_s: float):
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"--command {command!r}: {error}") from None
        if not self._words:
            raise UsageError("--command is empty: give a program that reads a prompt and writes an answer")
        self.name = one_line(Path(self._words[0]).name)
        self._timeout_s = min(timeout_s, LONGEST_WAIT_S)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Ends the program wherever it runs."""
        with self._lock:
            for process in self._running:
                _end(process)

    def propose(self, turn: Turn) -> Reply:
        """Runs the program.

        Raises:
            ProposerFailed: It wrote too much, took too long or failed.
        """
        try:
            process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ProposerFailed(Outcome.REFUSED, f"cannot run {self.name}: {error}") from None
        with self._lock:
            self._running.add(process)
        try:
            text, complaint = self._exchange(process, turn.prompt)
            code = process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            raise ProposerFailed(Outcome.TIMED_OUT, f"{self.name} did not end in {self._timeout_s:g} s") from None
        finally:
            _end(process)
            with self._lock:
                self._running.discard(process)
        if code:
            words = shortened(one_line(complaint.strip().rpartition("\n")[2]), _MAX_WORDS)
            raise ProposerFailed(Outcome.REFUSED, f"{self.name} ended with {code}: {words}")
        return Reply(text, estimated_tokens(turn.prompt, text))

    def _exchange(self, process: subprocess.Popen[bytes], prompt: str) -> tuple[str, str]:
        """Writes the prompt and reads stdout and the end of stderr, within the limits."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        left = memoryview(prompt.encode("utf-8", "backslashreplace"))
        answer, complaint = bytearray(), bytearray()
        deadline = time.monotonic() + self._timeout_s
        with selectors.DefaultSelector() as waiting, process.stdin, process.stdout, process.stderr:
            os.set_blocking(process.stdin.fileno(), False)
            waiting.register(process.stdin, selectors.EVENT_WRITE)
            waiting.register(process.stdout, selectors.EVENT_READ, answer)
            waiting.register(process.stderr, selectors.EVENT_READ, complaint)
            while any(key.fileobj is not process.stdin for key in waiting.get_map().values()):
                ready = waiting.select(max(0.0, deadline - time.monotonic()))
                if not ready and time.monotonic() >= deadline:
                    raise ProposerFailed(Outcome.TIMED_OUT, f"{self.name} did not answer in {self._timeout_s:g} s")
                for key, _ in ready:
                    if key.fileobj is process.stdin:
                        left = left[_written(key.fd, left) :]
                        if not left:
                            waiting.unregister(process.stdin)
                            process.stdin.close()
                        continue
                    data = os.read(key.fd, 1 << 16)
                    key.data.extend(data)
                    if not data:
                        waiting.unregister(key.fileobj)
                    if len(answer) > MAX_ANSWER_BYTES:
                        words = f"the answer has more than {MAX_ANSWER_BYTES:,} bytes, which is the limit"
                        raise ProposerFailed(
                            Outcome.TOO_LONG, words, estimated_tokens(prompt, answer.decode("latin-1"))
                        )
                    del complaint[:-4096]
        return answer.decode("utf-8", "replace"), complaint.decode("utf-8", "replace")


def _written(descriptor: int, data: memoryview) -> int:
    """Writes some bytes and returns how many; all, if nobody reads them any more."""
    try:
        return os.write(descriptor, data[: 1 << 16])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a program with all that it started in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Answers:
    """A folder of answers, given in the order of their names; a ``Proposer``.

    Args:
        folder: The folder. Files that end in .txt, .md or .py are answers.

    Raises:
        UsageError: The folder holds none.
    """

    name = "files"

    def __init__(self, folder: Path):
        if not folder.is_dir():
            raise UsageError(f"--from-files {one_line(str(folder))}: there is no such folder")
        self._files = sorted(one for one in folder.iterdir() if one.suffix in SUFFIXES and not one.is_dir())
        if not self._files:
            raise UsageError(f"--from-files {one_line(str(folder))}: no answer that ends in {', '.join(SUFFIXES)}")

    def propose(self, turn: Turn) -> Reply:
        """Returns the answer with the number of the turn.

        Raises:
            ProposerFailed: There is none, or it cannot be read.
        """
        if turn.number > len(self._files):
            raise ProposerFailed(Outcome.EXHAUSTED, f"the folder holds {len(self._files)} answers")
        path = self._files[turn.number - 1]
        try:
            data = read_regular(path, MAX_ANSWER_BYTES)
        except OSError as error:
            outcome = Outcome.TOO_LONG if error.errno == errno.EFBIG else Outcome.REFUSED
            raise ProposerFailed(outcome, f"cannot read {one_line(path.name)}: {error.strerror}") from None
        return Reply(data.decode("utf-8", "replace"), Tokens())
