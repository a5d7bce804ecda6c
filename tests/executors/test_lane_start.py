"""What the process has that workers are forked from."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path

import pytest

from harness.executors.lane_handle import LaneProcess, opening_of
from harness.executors.protocol import Opened, Opening
from harness.judge.process.leftovers import children_of
from harness.judge.process.zygote import start_environment
from harness.project.paths import import_path

#: A lane's program where the system refuses to fork, as at the limit of a user's processes.
REFUSED = """
import errno, os, sys
from multiprocessing.connection import Connection
from harness.executors.lane_start import become_lane

def refuse():
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

os.fork = refuse
become_lane(Connection(int(sys.argv[1])))
"""
SECRET = "a key that no candidate may see"


def _holds(process: int, text: str) -> bool:
    """Whether a process has a text anywhere in its memory."""
    with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            begin, end = (int(one, 16) for one in place.split("-"))
            if not rights.startswith("rw"):
                continue
            memory.seek(begin)
            with contextlib.suppress(OSError):  # memory of a device
                if text.encode() in memory.read(end - begin):
                    return True
    return False


@pytest.fixture
def lane(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """A lane's process and its zygote's, whose driver has a secret in its environment."""
    monkeypatch.setenv("SOMEBODY_S_KEY", SECRET)
    before = set(children_of(os.getpid()))
    lane = LaneProcess(Opening("cpu", own_home, False, os.getpid()))
    with contextlib.closing(lane):
        opening_of(lane)
        (number,) = (one for one in set(children_of(os.getpid())) - before if children_of(one))
        (zygote,) = children_of(number)
        yield number, zygote


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read the memory of processes that hide it")
def test_the_environment_of_a_lane_is_not_in_its_zygote(lane: tuple[int, int]) -> None:
    number, zygote = lane
    assert _holds(number, SECRET)
    assert not _holds(zygote, SECRET)


def test_nothing_of_a_zygote_outlives_its_lane(lane: tuple[int, int]) -> None:
    number, zygote = lane
    end = os.pidfd_open(zygote)
    os.kill(number, signal.SIGKILL)
    assert select.select([end], [], [], 60)[0] == [end]
    os.close(end)


def test_a_lane_opens_where_it_cannot_fork_and_with_a_nameless_variable(own_home: Path) -> None:
    ours, theirs = Pipe()
    command = [sys.executable, "-c", REFUSED, str(theirs.fileno())]
    environment = {**os.environ, "PYTHONPATH": import_path(), "": "a program may pass it"}
    with subprocess.Popen(command, env=start_environment(), pass_fds=[theirs.fileno()], process_group=0) as process:
        theirs.close()
        ours.send(environment)
        ours.send(Opening("cpu", own_home, False, os.getpid()))
        try:
            assert isinstance(ours.recv(), Opened)
        finally:
            ours.close()
    assert process.returncode == 0


def test_a_process_starts_with_what_libraries_read_then_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("SOMEBODY_S_KEY", "PYTHONANYWHERE_API_TOKEN", "TORCH_INDEX_PASSWORD", "CUDA_SECRET")
    manners = ("PYTHONIOENCODING", "PYTHONOPTIMIZE")  # a candidate would run otherwise
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TMPDIR", "PYTHONPATH", *secrets, *manners):
        monkeypatch.setenv(name, "7")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    begun = start_environment()
    assert (begun["OMP_NUM_THREADS"], begun["OPENBLAS_NUM_THREADS"], begun["TMPDIR"]) == ("7", "7", "7")
    assert not begun.keys() & {*secrets, *manners}
    assert "7" not in begun["PYTHONPATH"].split(os.pathsep)
    assert "PYTHONDONTWRITEBYTECODE" not in begun
