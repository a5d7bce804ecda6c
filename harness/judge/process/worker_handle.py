"""Controls a worker: starts it, sends commands, bounds its time, ends it with all it started.

The worker runs untrusted code and can only lose. It must answer in time with a message of the
schema. Anything else ends as a ``CandidateStopped`` with a status that fits.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from harness.errors import HarnessError
from harness.judge.process.candidate_stopped import CandidateStopped, ended_by_signal
from harness.judge.process.cut_log import CutLog
from harness.judge.process.disk import DiskWatch
from harness.judge.process.leftovers import (
    adopted,
    children_of,
    descendants,
    is_stopped,
    processes_of,
    processor_seconds,
    sweep,
    used_since,
)
from harness.judge.process.memory_watch import INTERVAL_S, MemoryWatch
from harness.judge.process.readable_files import copy_readable, readable_places, speakable
from harness.judge.process.time_limits import Clock, Waited
from harness.judge.process.zygote import Zygote, worker_environment
from harness.records.record import Status
from harness.records.rules import PROTOCOL
from harness.system.interrupts import shielded
from harness.system.processes import adopts_orphans, hide_memory, mapped_code
from harness.system.scratch import ScratchFolder
from harness.wire import channel
from harness.wire.commands import Command, Describe, Go, Load, LoadReference, TimeCalls
from harness.wire.encoding import SchemaError, decode, encode
from harness.wire.replies import REPLIES, Building, Ready, Reply

START_LIMIT_S = 120.0
DRAIN_READS = 64
SEND_LIMIT_S = 10
#: Seconds to wait until a stopped process stands still, and between two looks. On a busy machine a
#: thread gets its signal late.
STOP_LIMIT_S, STOP_PAUSE_S = 1.0, 0.00025
#: Seconds to wait for a killed process. One that a driver holds may take for ever.
END_LIMIT_S = 30
#: How much longer than its limit a wait lasts, in seconds, if the judge itself was stopped; and how often a worker's
#: clock leaves such a wait out. Without a bound, messages that take the judge long would stop the clock.
STOPPED_S, MOST_STOPS = 1.0, 3
#: An honest worker's refusals fit in this; longer ones are not remembered.
MAX_REFUSED_CHARACTERS = 2 << 20
#: The most builds of one worker that the judge remembers. It caches a quarter of that.
MAX_BUILDS = 1024


def end_adopted() -> None:
    """End the processes that ended workers and lanes left to this process."""
    with Zygote.births:
        sweep(lambda: adopted(Zygote.living))


class WorkerHandle:
    """A worker process for one candidate.

    Args:
        device: ``cpu`` or ``cuda:N``.
        libraries: The emulator's runtime libraries, by name.
        memory_bytes: Memory that the candidate may allocate beyond torch's own; None for no limit.
        confined: Whether to confine the worker; a trusted one needs no confinement.
        environment: Variables that it gets beside those of every worker.
        zygote: The process from which it is forked.
        builds_for: The compute capability of the GPU for which it only builds. None if it runs what
            it builds.

    Attributes:
        built: The builds since ``built`` was last emptied: build key to file name in the build folder.
        refused: The message and the log of each build that a compiler refused, by build key.
        confinement: Each layer of its confinement, and why it is missing (empty where it holds).
            Known after ``start``.
        living: As in ``Zygote``.
        waited: The time that this process waits for all its workers.
    """

    living: ClassVar[set[int]] = Zygote.living
    waited: ClassVar[Waited] = Waited()

    def __init__(
        self,
        device: str,
        libraries: dict[str, str],
        *,
        memory_bytes: int | None,
        confined: bool,
        environment: Mapping[str, str],
        zygote: Zygote,
        builds_for: tuple[int, int] | None = None,
    ):
        self.is_closed = False
        self._stops = 0
        self.confinement: dict[str, str] = {}
        self._judge_memory = hide_memory() if confined else ""
        self._scratch = ScratchFolder("harness-worker-")
        self.folder = self._scratch.path
        self._disk = DiskWatch(self.folder) if confined else None
        self._memory: MemoryWatch | None = None
        self._memory_bytes = memory_bytes if confined and sys.platform == "linux" else None
        self.build_folder = self.folder / "build"
        self.build_folder.mkdir()
        own_libraries = self._copied(libraries)
        self._emulator = {Path(path).resolve() for path in own_libraries.values()}
        self.log = CutLog()
        self.built: dict[str, str] = {}
        self.refused: dict[str, tuple[str, str]] = {}
        self._refused_characters = 0
        self._used_s: dict[int, float] = {}
        self._stood_s, self._stands_since = 0.0, 0.0
        self._children: list[int] = []
        self._channel, theirs = socket.socketpair()
        # A worker that stops reading must not stop the judge.
        limit = struct.pack("@ll", SEND_LIMIT_S, 0)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        log_read, log_write = os.pipe()
        os.set_blocking(log_read, False)
        self._log_fd: int | None = log_read
        try:
            self._process = zygote.fork(theirs, log_write)
        except HarnessError:
            self._channel.close()
            os.close(log_read)
            self._scratch.close()
            raise
        finally:
            theirs.close()
            os.close(log_write)
        self.living.add(self._process.pid)
        settings = {
            "device": device,
            "libraries": own_libraries,
            "memory_bytes": memory_bytes,
            "folder": str(self.folder),
            "build_folder": str(self.build_folder),
            "parent": os.getpid(),
            "zygote": zygote.pid or os.getpid(),
            "readable": readable_places(own_libraries.get("headers")) if confined else None,
            "builds_for": builds_for,
            "environment": {**worker_environment(self.folder), **environment},
        }
        with contextlib.suppress(channel.ChannelClosed):  # A closed channel shows in ``start``.
            channel.send(self._channel, json.dumps(settings).encode())
        self._reader = channel.FrameReader(self._channel)

    def _copied(self, libraries: dict[str, str]) -> dict[str, str]:
        """Copy the emulator's libraries, but not its headers, to where the worker may read; return all paths.

        Raises:
            HarnessError: A library cannot be copied. The worker's folder is removed then.
        """
        own = dict(libraries)
        for name, library in (one for one in libraries.items() if one[0] != "headers"):
            own[name] = str(self.folder / Path(library).name)
            try:
                copy_readable(Path(library), Path(own[name]))
            except OSError as error:
                shortage = DiskWatch(self.folder).shortage()
                self._scratch.close()
                raise HarnessError(shortage or f"cannot start a worker process: {library}: {error.strerror}") from None
        return own

    @property
    def loaded(self) -> set[Path]:
        """The files in the worker's folder whose code it has mapped, without the emulator's."""
        return mapped_code(self._process.pid, self.folder.resolve()) - self._emulator

    @property
    def has_ended(self) -> bool:
        """True if the worker's process has ended."""
        return self._process.poll() is not None

    def start(self) -> None:
        """Wait until the worker is ready; return at once if a call has waited before.

        Raises:
            HarnessError: The worker does not start, or has no room on the disk.
        """
        if self.confinement:
            return
        shortage = self._disk.shortage() if self._disk is not None else ""
        if shortage:
            raise HarnessError(shortage)
        try:
            with self.waited:
                reply = self._next(Clock(START_LIMIT_S, 0.0), "starting")
        except CandidateStopped as error:
            raise HarnessError(f"the worker process did not start: {error.message}\n{self.log.text()}") from None
        if not isinstance(reply, Ready):
            raise HarnessError(f"the worker process did not start: it sent {type(reply).__name__}")
        self.confinement = {**dict(reply.confined), "judge_memory": self._judge_memory}
        if self._memory_bytes is not None:
            self._memory = MemoryWatch(self._process.pid, self._memory_bytes)

    def check_confined(self) -> None:
        """Check that every layer of the confinement holds.

        Raises:
            HarnessError: A layer is missing. The message says which, and why.
        """
        missing = "; ".join(f"{layer}: {why}" for layer, why in self.confinement.items() if why)
        if missing:
            raise HarnessError(
                f"--require-confinement: did not run the candidate, because some layers are missing: {missing}"
            )

    def request(self, command: Command, clock: Clock, stage: str, descriptor: int | None = None) -> Reply:
        """Send a command and wait for its reply.

        Args:
            command: The command.
            clock: The seconds left. The request books what it uses.
            stage: What the candidate is doing, for messages, such as ``running forward``.
            descriptor: A file descriptor to send along.

        Raises:
            CandidateStopped: The worker died, ran out of time, filled the disk, or sent something
                else than a message.
        """
        if isinstance(command, Load):
            command = self._brought_in(command)
        elif isinstance(command, Describe):
            command = replace(command, problem=str(self._brought(Path(command.problem))))
        elif isinstance(command, LoadReference):
            command = replace(command, problem=speakable(command.problem, self.folder))
        # A resource check takes a moment, and the judge's clock times these two commands.
        if not isinstance(command, TimeCalls | Go):
            self._check_resources()
        self._check_unasked()
        with self.waited:
            started = time.monotonic()
            try:
                # A worker that died, or does not read, shows when no reply comes.
                with contextlib.suppress(channel.ChannelClosed, BlockingIOError):
                    channel.send(self._channel, encode(command), descriptor, SEND_LIMIT_S)
            except channel.FrameError as error:
                words = f"the names of its parameters and buffers are too long for a command: {error}"
                raise CandidateStopped(Status.LOAD_ERROR, words) from None
            clock.spend(False, time.monotonic() - started)
            return self._next(clock, stage)

    def pause(self) -> None:
        """Stop the worker's process group, and what it started elsewhere, until ``resume``."""
        self._children = children_of(self._process.pid)
        self._stands_since = time.monotonic()
        self._signal(signal.SIGSTOP)
        patience = time.monotonic() + STOP_LIMIT_S
        while not is_stopped(self._process.pid) and time.monotonic() < patience:
            time.sleep(STOP_PAUSE_S)  # A signal arrives when its thread is next scheduled.
        self._used_s = processor_seconds(self._process.pid)

    def used_since_pause(self) -> tuple[float, str]:
        """Return processor seconds used since ``pause``, and the name of the thread that used most of them."""
        return used_since(self._process.pid, self._used_s)

    def resume(self) -> None:
        """Let the worker continue; no-op if it already does, or has ended."""
        self._signal(signal.SIGCONT)
        self._stood_s, self._stands_since = self._stood_still_s(), 0.0

    def _stood_still_s(self) -> float:
        """Return the seconds of all pauses so far, which count on no clock of the worker."""
        since = self._stands_since
        return self._stood_s + (time.monotonic() - since if since else 0.0)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_closed:
            return
        for process in self._children:  # Children first, since one of them might wake the others.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # The worker has ended, or has no group yet.
            self._process.send_signal(number)

    def said(self) -> str:
        """Return what the worker has printed so far, cut in the middle if long."""
        self._drain()
        return self.log.text()

    def kill(self) -> None:
        """Kill the worker's processes; another thread that waits for it notices, and closes it."""
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        """End the worker and everything it started, and remove its folder."""
        with shielded():
            if self.is_closed:
                return
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGSTOP)
                sweep(lambda: descendants(self._process.pid))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.send_signal(signal.SIGKILL)  # The worker may have no group yet.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_LIMIT_S)
            self.living.discard(self._process.pid)
            # Only a program that judges adopts orphans, and it has no daemons of its own.
            if adopts_orphans():
                end_adopted()
            sweep(lambda: processes_of(self.folder))
            self._drain()
            self._channel.close()
            if self._log_fd is not None:
                os.close(self._log_fd)
                self._log_fd = None
            self._scratch.close()
            self.is_closed = True

    def _brought_in(self, command: Load) -> Load:
        """Return the command with copies in the worker's folder.

        The worker can read neither the solution's folder nor the cache.

        Raises:
            HarnessError: The files cannot be copied.
        """
        own = self._brought(Path(command.solution))
        libraries = {key: self.folder / "cached" / f"{key}.so" for key in command.cached}
        try:
            for key, path in libraries.items():
                # Somebody cleared the cache, so the worker builds again.
                with contextlib.suppress(FileNotFoundError):
                    copy_readable(Path(command.cached[key]), path)
        except OSError as error:
            raise HarnessError(f"cannot copy a library of {own} for the worker: {error.strerror}") from None
        return replace(command, solution=str(own), cached={key: str(path) for key, path in libraries.items()})

    def _brought(self, path: Path) -> Path:
        """Return the copy of a solution or problem in the worker's folder.

        Raises:
            HarnessError: The file cannot be copied.
        """
        own = self.folder / "solution" / (path.name if path.name.isprintable() else "solution.py")
        try:
            copy_readable(path, own)
        except OSError as error:
            raise HarnessError(f"cannot copy {path} for the worker: {error.strerror}") from None
        return own

    def _next(self, clock: Clock, stage: str) -> Reply:
        building = False
        while True:
            if clock.left(building) <= 0:
                limit = clock.build_limit_s if building else clock.run_limit_s
                doing, option = ("building", "--build-timeout") if building else (stage, "--timeout")
                raise CandidateStopped(Status.TIMEOUT, f"still {doing} after {limit:g} s ({option}); it was stopped")
            started, stood_s, left_s = time.monotonic(), self._stood_still_s(), clock.left(building)
            message = self._wait(left_s)
            if isinstance(message, Building):
                self._note(message)
                # A worker that sends messages without a pause would otherwise escape the checks.
                self._check_resources()
            # The clock also counts the work that a worker's messages give the judge.
            # A much longer wait shows that the judge itself was stopped, with the machine or its control group.
            spent_s = time.monotonic() - started - (self._stood_still_s() - stood_s)
            was_stopped = spent_s > left_s + STOPPED_S and self._stops < MOST_STOPS
            self._stops += was_stopped
            clock.spend(building, 0.0 if was_stopped else max(0.0, spent_s))
            if isinstance(message, Building):
                building = message.event == "begin"
            elif message is not None:
                self._note_built(getattr(message, "built", {}))
                return message

    def _note(self, message: Building) -> None:
        """Keep what a compiler has built or refused, even if the worker dies before its reply."""
        self._note_built(message.built)
        own = f"{self.folder}/solution/"
        for key, (told, log) in message.refused.items():
            if key in self.refused:
                continue
            size = len(json.dumps([key, told, log]))
            if self._refused_characters + size <= MAX_REFUSED_CHARACTERS:
                self.refused[key] = (told.replace(own, ""), log)
                self._refused_characters += size

    def _note_built(self, built: Mapping[str, str]) -> None:
        """Keep the names of builds, up to a number that no honest candidate reaches."""
        for key, path in built.items():
            if key in self.built or len(self.built) < MAX_BUILDS:
                self.built[key] = path

    def _wait(self, seconds: float) -> Reply | None:
        """Return the next message; None if the time is up or only output has arrived."""
        try:
            frame = self._reader.take()
            if frame is None:
                watched: list[int | socket.socket] = [self._channel]
                if self._log_fd is not None:
                    watched.append(self._log_fd)
                ready, _, _ = select.select(watched, [], [], max(0.0, min(seconds, INTERVAL_S)))
                if self._log_fd in ready:
                    self._drain()
                if self._channel in ready:
                    self._reader.feed()
                # A child of the worker may hold the channel open.
                elif self._process.poll() is not None:
                    raise channel.ChannelClosed("exited")
                frame = self._reader.take()
            if frame is None:
                self._check_resources()
                return None
            reply: Reply = decode(frame, REPLIES)
            # The worker is dead, so another process answered in its place. Words about builds are no answer.
            if not isinstance(reply, Building) and self._process.poll() is not None:
                raise channel.ChannelClosed("exited")
            return reply
        except channel.ChannelClosed:
            raise self._death() from None
        except (channel.FrameError, SchemaError) as error:
            raise self._unknown(error) from None

    def _check_unasked(self) -> None:
        """Check that no reply has arrived before its command.

        Such a reply would end a timed call before its work.

        Raises:
            CandidateStopped: A reply is there, or something that is no message.
        """
        try:
            # A closed channel shows when a reply is due.
            with contextlib.suppress(channel.ChannelClosed):
                self._reader.feed()
            while (frame := self._reader.take()) is not None:
                message = decode(frame, REPLIES)
                # A thread of the candidate may build at any time.
                if not isinstance(message, Building):
                    words = f"the worker sent {type(message).__name__} without a command"
                    raise CandidateStopped(Status.CHEATED, words, rule=PROTOCOL)
                self._note(message)
        except (channel.FrameError, SchemaError) as error:
            raise self._unknown(error) from None

    @staticmethod
    def _unknown(error: Exception) -> CandidateStopped:
        words = f"the worker sent an invalid message: {error}"
        return CandidateStopped(Status.CHEATED, words, rule=PROTOCOL)

    def _check_resources(self) -> None:
        """Check that the candidate leaves disk space and memory for others.

        Raises:
            CandidateStopped: It does not.
        """
        for watch, status in ((self._disk, Status.RUNTIME_ERROR), (self._memory, Status.OUT_OF_MEMORY)):
            if fault := watch.fault() if watch is not None else "":
                self.kill()
                raise CandidateStopped(status, f"{fault}; it was stopped")

    def _death(self) -> CandidateStopped:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return CandidateStopped(Status.CHEATED, "the candidate closed the worker's channel", rule=PROTOCOL)
        self._drain()
        if code >= 0:
            return CandidateStopped(Status.CRASHED, f"the process ended with exit code {code} while the candidate ran")
        is_used_up = self._memory is not None and self._memory.is_used_up(self._process.peak_bytes)
        return ended_by_signal(-code, is_used_up)

    def _drain(self) -> None:
        """Read what the worker printed; bounded, so that endless output cannot outrun the clock."""
        for _ in range(DRAIN_READS):
            if self._log_fd is None:
                return
            try:
                data = os.read(self._log_fd, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                os.close(self._log_fd)
                self._log_fd = None
                return
            self.log.add(data)
