"""The zygote: a process that has imported torch and forks workers.

It has one thread, no device, and nothing of a candidate. It runs no code of a candidate either: a
worker confines itself before it runs any.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from harness.system.interrupts import reset_inherited
from harness.system.processes import (
    OPEN_FILES,
    adopt_orphans,
    die_with_parent,
    hide_memory,
    offer_to_out_of_memory_killer,
    show_memory,
    threads_of_this_process,
)
from harness.wire import channel
from harness.worker.confinement import confine

#: The answer to a request: the worker's process id, or a negative error number.
ANSWER = struct.Struct("!i")
#: The number of descriptors in a request: a worker's end of its channel, and the end of the pipe
#: for its output.
DESCRIPTORS = 2
#: The modules to import. torch's first backward would otherwise import ``symbolic_shapes``, for
#: most of a second.
_MODULES = ("harness.worker.main", "torch.fx.experimental.symbolic_shapes")
_CHANNEL = 3


def import_all() -> None:
    """Imports the modules that workers need.

    A GPU's driver must not start meanwhile, since it does not survive a fork.
    """
    gc.disable()  # imported modules stay alive
    import torch

    with _no_look_at_the_device(torch.cuda):
        for name in _MODULES:
            importlib.import_module(name)
    gc.freeze()  # workers share these objects and need not scan them
    gc.enable()


@contextlib.contextmanager
def _no_look_at_the_device(cuda: Any) -> Iterator[None]:
    """Keeps ``torch.utils.cpp_extension`` from looking for a GPU during its import.

    The import looks for one only to print a warning if there is none.
    """
    asked, cuda.is_available = cuda.is_available, lambda: True
    try:
        yield
    finally:
        cuda.is_available = asked


def serve(ours: socket.socket) -> NoReturn:
    """Is a zygote on this end of the judge's socket pair, and a worker in each forked process."""
    reset_inherited()
    hide_memory()  # a worker makes its own memory readable again
    sys.path.insert(0, "/")  # a worker has its folder there; Python's option -P leaves no place for it
    worker = ZygoteServer(ours).serve()
    code = worker.run() if worker is not None else 0
    sys.stdout.flush()
    # os._exit ignores whatever threads and exit handlers the candidate left behind.
    os._exit(code)


class ZygoteServer:
    """Answers the judge's requests until the judge closes its end.

    Args:
        ours: One end of a socket pair. Only the judge holds the other end.
    """

    def __init__(self, ours: socket.socket):
        self._ours = ours

    def serve(self) -> NewWorker | None:
        """Forks a worker for each request.

        Returns:
            In a forked process, the worker to run. In the zygote None, once the judge has closed
            its end.
        """
        self._ours.send(ANSWER.pack(0))
        while True:
            _, descriptors, _, _ = socket.recv_fds(self._ours, 1, DESCRIPTORS)
            if len(descriptors) != DESCRIPTORS:
                return None
            # On a system where no process adopts orphans, this process itself becomes the worker.
            number = self._forked() if sys.platform == "linux" else os.getpid()
            if number == os.getpid():
                self._ours.send(ANSWER.pack(number))
                return NewWorker(*descriptors)
            if not number:
                return NewWorker(*descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            self._ours.send(ANSWER.pack(number))

    @staticmethod
    def _forked() -> int:
        """Forks a worker whose parent is the judge.

        An intermediate process forks the worker and ends at once. The judge adopts orphans, so it
        becomes the worker's parent before anyone learns the worker's process id.

        Returns:
            The worker's process id, 0 in the worker, or a negative error number.
        """
        reading, writing = os.pipe()
        try:
            between = os.fork()
        except OSError as error:
            os.close(reading)
            os.close(writing)
            return -(error.errno or 1)
        if not between:
            try:
                number = os.fork()
            except OSError as error:
                number = -(error.errno or 1)
            if not number:
                return 0
            os.write(writing, ANSWER.pack(number))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as told:
            os.waitpid(between, 0)
            return int(ANSWER.unpack(told.read(ANSWER.size))[0])


class NewWorker:
    """A forked process that is about to become a worker and still has everything of the zygote's.

    Args:
        theirs: The descriptor of its end of the channel.
        log: The descriptor for its output.
    """

    def __init__(self, theirs: int, log: int):
        self._theirs = theirs
        self._log = log

    def run(self) -> int:
        """Turns the process into a worker, runs it, and returns the exit code."""
        ours = self._kept_descriptors()
        try:
            # By now the judge has this process's id and is its parent.
            data, _ = channel.receive(ours)
        except channel.ChannelClosed:
            return 1
        settings: dict[str, Any] = json.loads(data)
        judge, folder, readable = settings["parent"], Path(settings["folder"]), settings["readable"]
        with contextlib.suppress(PermissionError):  # a process that was not forked already leads a group
            os.setsid()
        os.environ.clear()
        os.environ.update(settings["environment"])
        tempfile.tempdir = None  # a module may have asked for it under the judge's environment
        os.chdir(folder)
        sys.path[0], sys.argv = str(folder), ["harness.worker"]
        if headers := settings["libraries"].get("headers"):
            settings["libraries"]["headers"] = _held(headers)
        die_with_parent(judge)
        adopt_orphans()  # so that the judge finds all descendants
        show_memory()  # as in any program: it holds nothing of the judge's
        confined = []
        if readable is not None:
            offer_to_out_of_memory_killer()
            # Confinement would not reach other threads.
            if sys.platform == "linux" and threads_of_this_process() != 1:
                print("a worker must start with one thread", file=sys.stderr)
                return 1
            confined = confine(folder, readable, (judge, settings["zygote"]), settings["device"] != "cpu")
        die_with_parent(judge)  # a change of user cancels the first call
        from harness.worker.main import main

        return main(ours, settings, confined)

    def _kept_descriptors(self) -> socket.socket:
        """Closes all descriptors but the channel and the standard ones, and returns the channel."""
        nothing = os.open(os.devnull, os.O_RDONLY)
        for given, number in ((nothing, 0), (self._log, 1), (self._log, 2)):
            os.dup2(given, number)
        if self._theirs != _CHANNEL:
            os.dup2(self._theirs, _CHANNEL, inheritable=False)
        os.closerange(_CHANNEL + 1, os.sysconf("SC_OPEN_MAX"))
        return socket.socket(fileno=_CHANNEL)


def _held(folder: str) -> str:
    """Returns a path by which this process and its compilers reach a folder, also as another user."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return folder  # it need not exist
    return str(OPEN_FILES / str(descriptor)) if OPEN_FILES.is_dir() else folder
