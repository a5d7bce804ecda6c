"""A process that has imported torch, of which workers are forked: one thread, no device, nothing of a candidate's."""

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
from typing import Any

from harness.system.processes import (
    adopt_orphans,
    die_with_parent,
    offer_to_out_of_memory_killer,
    show_memory,
    threads_of_this_process,
)
from harness.wire import channel
from harness.worker.confinement import confine

#: A worker's number, or, negative, the error why there is none.
ANSWER = struct.Struct("!i")
#: What comes with a request: a worker's end of its channel, and the end of the pipe that it prints to.
DESCRIPTORS = 2
#: ``symbolic_shapes`` torch's first backward would import, for most of a second.
_MODULES = ("harness.worker.main", "torch.fx.experimental.symbolic_shapes")
_CHANNEL = 3


def import_all() -> None:
    """Import what workers need; a GPU's driver must not start meanwhile, since it does not survive a fork."""
    gc.disable()  # what is imported stays
    import torch

    with _no_look_at_the_device(torch.cuda):
        for name in _MODULES:
            importlib.import_module(name)
    gc.freeze()  # workers share it, and need not look through it
    gc.enable()


@contextlib.contextmanager
def _no_look_at_the_device(cuda: Any) -> Iterator[None]:
    """``torch.utils.cpp_extension`` asks for a GPU at its import, only to warn where there is none."""
    asked, cuda.is_available = cuda.is_available, lambda: True
    try:
        yield
    finally:
        cuda.is_available = asked


class ZygoteServer:
    """Answers the judge's requests until the judge is gone.

    Args:
        ours: The end of a socket pair whose other end only the judge holds.
    """

    def __init__(self, ours: socket.socket):
        self._ours = ours

    def serve(self) -> NewWorker | None:
        """Fork a worker for each request; None at the end, and in a worker that worker."""
        self._ours.send(ANSWER.pack(0))
        while True:
            _, descriptors, _, _ = socket.recv_fds(self._ours, 1, DESCRIPTORS)
            if len(descriptors) != DESCRIPTORS:
                return None
            # Where nobody adopts orphans this process itself becomes the worker.
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
        """Fork a worker off, whose parent is the judge; its number, 0 in it, or the negative error.

        Its own parent, between the two, ends at once: the judge, the next above that adopts orphans, is its parent from
        then on, before anybody is told its number.
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
    """A process that is to be a worker, and has everything of the zygote's still.

    Args:
        theirs: Its end of the channel.
        log: Where it prints to.
    """

    def __init__(self, theirs: int, log: int):
        self._theirs = theirs
        self._log = log

    def run(self) -> int:
        """Become a worker in every respect, and run it; the exit code."""
        ours = self._kept_descriptors()
        try:
            data, _ = channel.receive(ours)  # the judge has its number by then, and is its parent
        except channel.ChannelClosed:
            return 1
        settings: dict[str, Any] = json.loads(data)
        judge, folder, readable = settings["parent"], Path(settings["folder"]), settings["readable"]
        with contextlib.suppress(PermissionError):  # what was not forked leads a group already
            os.setsid()
        os.environ.clear()
        os.environ.update(settings["environment"])
        tempfile.tempdir = None  # a module may have asked for it under the judge's environment
        os.chdir(folder)
        sys.path[0], sys.argv = str(folder), ["harness.worker"]
        die_with_parent(judge)
        adopt_orphans()  # so that the judge finds them all
        show_memory()  # as any program's: there is nothing of the judge's in it
        confined = []
        if readable is not None:
            offer_to_out_of_memory_killer()
            if sys.platform == "linux" and threads_of_this_process() != 1:  # confinement would not reach the others
                print("a worker must begin with one thread", file=sys.stderr)
                return 1
            confined = confine(folder, readable, (judge, settings["zygote"]), settings["device"] != "cpu")
        die_with_parent(judge)  # changing users has cancelled it
        from harness.worker.main import main

        return main(ours, settings, confined)

    def _kept_descriptors(self) -> socket.socket:
        """Close all but the channel and the three that every program has; the channel."""
        nothing = os.open(os.devnull, os.O_RDONLY)
        for given, number in ((nothing, 0), (self._log, 1), (self._log, 2)):
            os.dup2(given, number)
        if self._theirs != _CHANNEL:
            os.dup2(self._theirs, _CHANNEL, inheritable=False)
        os.closerange(_CHANNEL + 1, os.sysconf("SC_OPEN_MAX"))
        return socket.socket(fileno=_CHANNEL)
