"""Tests the limit on the memory of a candidate's processes, without counting shared memory twice."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.judge.process import memory_watch as memory
from harness.judge.process import pacing
from harness.judge.process.memory_watch import MemoryWatch
from harness.records.record import EvaluationRecord
from tests.judge.in_process import judged
from tests.worker.confinement.conftest import PROBLEM

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the watch reads /proc")
BOUND_BYTES = 256 << 20
#: A process that holds 160 MiB, and has two children who do something with them.
FAMILY = """
import mmap, os, signal, sys

input()
held = {mapping}
held.write(bytes(len(held)))
for _ in range(2):
    if not os.fork():
        {does}
        os.write(1, b"ready\\n")
        signal.pause()
os.write(1, b"ready\\n")
signal.pause()
"""
#: Children that hold 100 MiB each, and the candidate with them.
SOLUTION = """
import mmap, os, signal
import torch.nn as nn


def take():
    held = mmap.mmap(-1, 100 << 20, {flags})
    for offset in range(0, len(held), mmap.PAGESIZE):
        held[offset] = 1
    return held


def attack():
    for _ in range({count}):
        if not os.fork():
            held = take()
            {then}
            os._exit(0)
    {waits}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        attack()

    def forward(self, x):
        return x * 2
"""
PRIVATE, SHARED = "mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS", "mmap.MAP_SHARED | mmap.MAP_ANONYMOUS"


@pytest.fixture(autouse=True)
def _looks_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LEAST_BOUND_BYTES", 0)
    monkeypatch.setattr(memory, "INTERVAL_S", 0.0)
    monkeypatch.setattr(pacing, "_REST", 0)


@contextlib.contextmanager
def family(mapping: str, does: str) -> Iterator[MemoryWatch]:
    """A watch over a process that has begun without memory, and has three processes with some by now."""
    code = FAMILY.format(mapping=mapping, does=does)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            watch = MemoryWatch(process.pid, BOUND_BYTES)
            assert watch.fault() == ""
            process.stdin.write("\n")
            process.stdin.flush()
            assert [process.stdout.readline() for _ in range(3)] == ["ready\n"] * 3
            yield watch
        finally:
            subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=True)


@pytest.mark.parametrize("flags", [PRIVATE, SHARED])
def test_pages_that_processes_share_count_once(flags: str) -> None:
    with family(f"mmap.mmap(-1, 160 << 20, {flags})", "sum(memoryview(held)[::4096])") as watch:
        assert [watch.fault() for _ in range(3)] == ["", "", ""]


@pytest.mark.parametrize("flags", [PRIVATE, SHARED])
def test_pages_of_each_process_s_own_add_up(flags: str) -> None:
    copies = f"own = mmap.mmap(-1, 160 << 20, {flags}); own.write(bytes(len(own)))"
    with family(f"mmap.mmap(-1, 160 << 20, {flags})", copies) as watch:
        first, second = watch.fault(), watch.fault()
    assert first == ""  # a moment in which a child is about to start a program must not count
    assert "of memory together, more than 2" in second


def test_a_machine_that_runs_short_ends_the_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    with family("mmap.mmap(-1, 4096)", "pass") as watch:
        assert watch.fault() == ""
        monkeypatch.setattr(memory, "available_memory", lambda: 1 << 20)
        assert "the machine had less than" in watch.fault()


@pytest.mark.parametrize("flags", [PRIVATE, SHARED])
@pytest.mark.parametrize("then", ["signal.pause()", "os.setsid() and os.fork() or signal.pause()"])
def test_children_that_hold_too_much_end_the_candidate(flags: str, then: str, tmp_path: Path, home: Path) -> None:
    record = with_children(tmp_path, home, flags=flags, count=4, then=then, waits="signal.pause()")
    assert record.status == "OUT_OF_MEMORY", record.message
    assert "its processes use" in record.message
    assert "use less memory at a time" in record.message


def test_children_that_hold_less_pass(tmp_path: Path, home: Path) -> None:
    waits = "[os.wait() for _ in range(2)]"
    record = with_children(tmp_path, home, flags=PRIVATE, count=2, then="pass", waits=waits)
    assert record.status == "PASSED", record.message


def with_children(folder: Path, home: Path, **holes: object) -> EvaluationRecord:
    """The record of a candidate with children that take memory."""
    return judged(PROBLEM, SOLUTION.format(**holes), folder, home, memory_bytes=BOUND_BYTES)
