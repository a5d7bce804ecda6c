"""Starts a lane's process: ``python -m harness.executors.lane_start DESCRIPTOR``.

The process imports torch, forks its zygote, and becomes the lane. So both have torch after one
import. At the fork the process holds nothing that a candidate must not see: it starts with the
variables of a zygote, and its own come over the link afterwards. It has no secret yet, either.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from multiprocessing.connection import Connection
from typing import NoReturn

from harness.judge.process.zygote import Zygote
from harness.worker import zygote


def forked_zygote() -> Zygote:
    """Forks a zygote from this process, which has one thread and has imported torch.

    Where the system refuses, the zygote is one that has not started. The session starts it, and
    reports what it lacks.
    """
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        said = os.fdopen(os.memfd_create("zygote"), "w+b")
        number = os.fork()
    except OSError:
        return Zygote()
    if not number:
        _be_zygote(theirs.detach(), said.fileno())
    theirs.close()
    return Zygote.forked(number, ours, said)


def _be_zygote(theirs: int, said: int) -> NoReturn:
    """Turns this fork into what ``python -m harness.worker`` is."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for given, number in ((nothing, 0), (said, 1), (said, 2), (theirs, 3)):
        os.dup2(given, number, inheritable=number < 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    sys.argv = ["harness.worker"]
    sys.dont_write_bytecode = True
    zygote.serve(socket.socket(fileno=3))


def become_lane(connection: Connection) -> NoReturn:
    """Turns this process into a lane that serves on this connection.

    The driver's first message is the environment.
    """
    forked = forked_zygote() if sys.platform == "linux" else Zygote()
    from harness.executors import child_main, lane_process

    try:
        _take(connection.recv())
    except (EOFError, ConnectionResetError):  # the driver has gone
        child_main.leave(0)
    with connection:
        code = lane_process.run(connection, forked)
    child_main.leave(code)


def _take(environment: dict[str, str]) -> None:
    """Gives this process its environment, which it could not have before the fork."""
    os.environ.clear()
    os.environ.update({name: value for name, value in environment.items() if name})  # a program may pass ``=value``
    sys.path[1:1] = environment["PYTHONPATH"].split(os.pathsep)[1:]  # the first folder is the harness's
    tempfile.tempdir = None  # a module may have asked for it already


if __name__ == "__main__":
    zygote.import_all()
    become_lane(Connection(int(sys.argv[1])))
