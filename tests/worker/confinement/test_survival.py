"""Tests that the judge survives whatever a candidate does to shared resources, and reports it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

#: Does something in its first forward, then computes honestly.
SOLUTION = '''
import array, contextlib, ctypes, fcntl, mmap, os, resource, signal, socket, struct, sys, tempfile, time
import torch.nn as nn

judge = os.getppid()
libc = ctypes.CDLL(None, use_errno=True)
channel = socket.socket(fileno=3)
done = []


def descriptors():
    """The numbers of all open descriptors."""
    return [int(name) for name in os.listdir("/proc/self/fd")]


def to_each(act):
    """Does something to each descriptor that can be done."""
    for number in descriptors():
        with contextlib.suppress(OSError):
            act(number)


def until_refused(take):
    """Takes more and more of something, and holds it."""
    held = []
    with contextlib.suppress(OSError):
        while len(held) < 20000:
            held.append(take())
    return held


def timer():
    """A POSIX timer that sends a signal to this process."""
    number = ctypes.c_int()
    if libc.timer_create(1, None, ctypes.byref(number)):
        raise OSError
    return number


def punch(number):
    """Takes the pages of a shared file away, but not its size."""
    if libc.fallocate(number, 3, ctypes.c_long(0), ctypes.c_long(1 << 30)):
        raise OSError


def attack():
{does}


class ModelNew(nn.Module):
    def forward(self, x):
        if not done:
            done.append(True)
            attack()
        return x * 2
'''


class Way(NamedTuple):
    """What a candidate tries, and the statuses that may come of it."""

    name: str
    does: str
    statuses: tuple[str, ...]


WAYS = [
    Way("stops-reading", "channel.shutdown(socket.SHUT_RD)", ("CRASHED",)),
    Way("stops-writing", "channel.shutdown(socket.SHUT_WR)", ("CRASHED", "CHEATED")),
    Way("shuts-the-channel", "channel.shutdown(socket.SHUT_RDWR)", ("CRASHED", "CHEATED")),
    Way("sends-urgent-data", "channel.send(b'x', socket.MSG_OOB)", ("PASSED", "CHEATED", "TIMEOUT")),
    Way("closes-everything", "os.closerange(0, 4096)", ("CRASHED", "CHEATED")),
    Way(
        "sends-descriptors",
        "until_refused(lambda: socket.send_fds(channel, [b'\\0'], [0] * 200))",
        ("PASSED", "CHEATED"),
    ),
    Way(
        "leaves-descriptors-on-their-way",
        "done.extend(socket.socketpair())\nuntil_refused(lambda: socket.send_fds(done[1], [b'x'], [0] * 200))",
        ("PASSED",),
    ),
    Way("asks-for-signals", "to_each(lambda number: fcntl.fcntl(number, fcntl.F_SETOWN, judge))", ("PASSED",)),
    Way(
        "asks-for-signals-when-ready",
        "to_each(lambda number: fcntl.fcntl(number, 10, signal.SIGKILL))\n"
        "to_each(lambda number: fcntl.fcntl(number, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK))",
        ("PASSED", "CRASHED"),
    ),
    Way("shrinks-pipes", "to_each(lambda number: fcntl.fcntl(number, 1031, 4096))", ("PASSED",)),
    Way("fills-pipes", "done.append(until_refused(os.pipe))", ("PASSED", "RUNTIME_ERROR")),
    Way("truncates", "to_each(lambda number: os.ftruncate(number, 0))", ("PASSED",)),
    Way("extends", "to_each(lambda number: os.ftruncate(number, 1 << 30))", ("PASSED",)),
    Way("punches-holes", "to_each(punch)", ("UNSAFE", "CHEATED")),
    Way("seals", "to_each(lambda number: fcntl.fcntl(number, fcntl.F_ADD_SEALS, 16))", ("PASSED",)),
    Way("locks", "to_each(lambda number: fcntl.flock(number, fcntl.LOCK_EX))", ("PASSED",)),
    Way("sets-timers", "done.append(until_refused(timer))", ("PASSED",)),
    Way("wakes-itself", "signal.setitimer(signal.ITIMER_REAL, 1e-3)\nsignal.pause()", ("CRASHED",)),
    Way(
        "hides",
        "libc.prctl(1, 0, 0, 0, 0)\nlibc.prctl(4, 0, 0, 0, 0)\nlibc.prctl(36, 0, 0, 0, 0)\n"
        "libc.prctl(15, b') Z 1 (\\nx', 0, 0, 0)\n"
        "if not os.fork():\n    os.setsid()\n    os.fork()\n    signal.pause()",
        ("PASSED",),
    ),
    Way(
        "floods-the-judge-with-refused-builds",
        "import json, struct\n"
        "def frame(refused):\n"
        "    told = {'type': 'Building', 'event': 'end', 'name': 'x', 'built': {}, 'refused': refused}\n"
        "    return struct.pack('!I', len(json.dumps(told))) + json.dumps(told).encode()\n"
        "channel.sendall(frame({f'{number:x}': ['', ''] for number in range(100000)}))\n"
        "while True:\n    channel.sendall(frame({'0': ['', '']}) * 400)",
        ("TIMEOUT",),
    ),
    Way("kills-itself", "os.kill(os.getpid(), signal.SIGKILL)", ("CRASHED",)),
]
HONEST = "honest"


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory, written: Callable[..., Any], harness: Callable[..., Any]) -> Any:
    """What came of all ways in one command on one lane, and of an honest candidate behind them."""
    folder = tmp_path_factory.mktemp("survival")
    options = written(folder, "")[2:]
    files = []
    for way in (*WAYS, Way(HONEST, "pass", ("PASSED",))):
        files.append(folder / f"{way.name}.py")
        files[-1].write_text(SOLUTION.replace("{does}", "    " + way.does.replace("\n", "\n    ")))
    return harness("evaluate", *files, *options, "--timeout", "10")


@pytest.mark.skipif(sys.platform != "linux", reason="tries what Linux has")
@pytest.mark.parametrize("way", [pytest.param(way, id=way.name) for way in WAYS])
def test_the_judge_says_what_came_of_it(way: Way, survived: Any) -> None:
    (row,) = [row for row in survived.rows if Path(row["solution"]).stem == way.name]
    assert row["status"] in way.statuses, row["message"]


@pytest.mark.skipif(sys.platform != "linux", reason="tries what Linux has")
def test_the_command_ends_as_it_should(survived: Any) -> None:
    assert survived.code == 1, survived.err
    assert "Traceback" not in survived.err
    assert len(survived.rows) == len(WAYS) + 1
    assert survived.rows[-1]["status"] == "PASSED", survived.rows[-1]["message"]
