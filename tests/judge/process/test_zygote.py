"""Tests that workers are forked from a process that has imported torch, and are isolated from it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.executors.tools import tools_for
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.process.workers import Workers
from harness.judge.process.zygote import Zygote


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    with contextlib.closing(Zygote()) as zygote:
        yield zygote


@pytest.fixture
def workers(zygote: Zygote, home: Path) -> Iterator[Workers]:
    with contextlib.closing(
        Workers("cpu", tools_for("cpu", home).libraries, memory_bytes=None, zygote=zygote)
    ) as workers:
        yield workers


def _living_in(folder: Path) -> set[int]:
    """Processes of ours that work in a folder; some may have ended, of other tests too."""
    found = set()
    for number in Zygote.living:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{number}/cwd").readlink() == folder:
                found.add(number)
    return found


def _number(worker: WorkerHandle) -> int:
    (number,) = _living_in(worker.folder)
    return number


def test_a_worker_is_the_judges_child_with_nothing_of_the_zygotes(workers: Workers, zygote: Zygote) -> None:
    with contextlib.closing(workers.take()) as worker:
        worker.start()
        number = _number(worker)
        stat = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        assert (int(stat[1]), int(stat[3])) == (os.getpid(), number)  # parent, session
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{number}/status").read_text().splitlines())
        assert status["Threads"].strip() == "1"
        handled = {number for number in signal.valid_signals() if int(status["SigCgt"], 16) >> (number - 1) & 1}
        assert handled == {signal.SIGINT}  # Python's own; the C library's 32 and 33 are not in valid_signals()
        descriptors = {int(path.name): path.readlink() for path in Path(f"/proc/{number}/fd").iterdir()}
        more = {path for number, path in descriptors.items() if number > 3}
        assert descriptors.keys() >= {0, 1, 2, 3}
        assert {path.name for path in more} <= {"headers"}, more  # the precompiled ones, once they are built
        assert zygote.pid != number
    assert not Path(f"/proc/{number}").exists()


def test_a_zygote_that_dies_is_replaced_and_its_workers_live(workers: Workers, zygote: Zygote) -> None:
    with contextlib.closing(workers.take()) as first:
        before = zygote.pid
        os.kill(before, signal.SIGKILL)
        with contextlib.closing(workers.take()) as second:
            first.start()
            second.start()
        assert zygote.pid != before


def test_threads_start_and_end_workers_side_by_side(workers: Workers) -> None:
    failed: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(3):
                with contextlib.closing(workers.take()) as worker:
                    worker.start()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_the_next_worker_may_start_before_it_is_asked_for(workers: Workers) -> None:
    with contextlib.closing(workers.take()) as first:
        first.start()
        workers.start_next()
        workers.settle_next()
        with contextlib.closing(workers.take()) as second, contextlib.closing(workers.take()) as third:
            assert len({first.folder, second.folder, third.folder}) == 3
            assert second.confinement  # it is ready
            assert not third.confinement
            second.start()  # which waits for nothing any more
        before = set(Zygote.living)
        workers.start_next()
        workers.settle_next()
        (next_number,) = Zygote.living - before
        os.kill(next_number, signal.SIGKILL)
        with contextlib.closing(workers.take()) as fourth:
            fourth.start()
            assert not fourth.has_ended
