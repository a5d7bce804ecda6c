"""Many candidates side by side: builds ahead, lanes, and what happens when processes are killed at random moments."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.emulator.toolchain import build_runtime
from harness.store import Store
from tests.commands.test_lines import HONEST, PROBLEM
from tests.conftest import Ran

Harness = Callable[..., Ran]
REPOSITORY = Path(__file__).resolve().parents[2]
KERNEL = '''
import torch
from torch.utils.cpp_extension import load_inline

extension = load_inline(
    name="copies",
    cpp_sources="",
    cuda_sources="""
__global__ void copy(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = tanhf(x[i]); }
extern "C" void run(const float* x, float* y, int n) { copy<<<1, 64>>>(x, y, n); }
""",
    is_python_module=False,
    no_implicit_headers=True,
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.tanh()
'''
BROKEN = KERNEL.replace("int i = threadIdx.x;", "int i = threadIdx.nothing;")


@pytest.fixture
def folder(home: Path, tmp_path: Path) -> Path:
    """A folder with the problem and an empty HARNESS_HOME, but for the emulator's runtime."""
    build_runtime(home / "emulator")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "emulator").symlink_to(home / "emulator")
    (tmp_path / "problem.py").write_text(PROBLEM)
    (tmp_path / "answers").mkdir()
    return tmp_path


def test_what_is_built_ahead_ends_as_it_would_have(harness: Harness, folder: Path) -> None:
    """The second is built while the first is judged: what a compiler refuses is not compiled again."""
    for name, text in (("a", KERNEL), ("b", BROKEN)):
        (folder / "answers" / f"{name}.py").write_text(text)
    arguments = ("evaluate", "answers", "--problem", "problem.py", "--case", "small", "--device", "cpu", "--json")
    environment = {"HARNESS_HOME": str(folder / "home")}
    at_once = harness(*arguments, "--ahead", "0", cwd=folder, **environment)
    for path in (folder / "home" / "builds").glob("*/*.so"):
        path.unlink()
    ahead = harness(*arguments, "--fresh", "--ahead", "2", cwd=folder, **environment)
    for ran in (at_once, ahead):
        assert [row["status"] for row in ran.rows] == ["PASSED", "BUILD_ERROR"], ran.err
    told = [ran.rows[1]["message"].partition("\nfull log:")[0] for ran in (at_once, ahead)]
    messages = [re.sub(r"/\S+/solution/", "", message) for message in told]  # a worker's own folder
    assert messages[0] == messages[1]
    assert "nothing" in messages[0]
    assert at_once.rows[1]["build_s"] > 0
    assert ahead.rows[1]["build_s"] == 0


def _processes_of(driver: int) -> Iterator[int]:
    """Descendants of a process."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(path.parent.name))
    waiting = [driver]
    while waiting:
        born = parents.get(waiting.pop(), [])
        yield from born
        waiting += born


class Batch:
    """A command over a folder of candidates, run until it ends or is killed."""

    def __init__(self, folder: Path, count: int):
        self.folder = folder
        self.names = {f"answers/a{number:03}.py" for number in range(count)}
        for number in range(count):
            text = f"{HONEST}# {number}\n" if number % 8 else f"{KERNEL}# {number}\n"
            (folder / "answers" / f"a{number:03}.py").write_text(text)

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "harness", "evaluate", "answers", "--problem", "problem.py", "--json"]
        return subprocess.Popen(
            [*command, "--case", "small", "--device", "cpu", *options],
            cwd=self.folder,
            env={**os.environ, "HARNESS_HOME": str(self.folder / "home"), "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def left_over(self) -> list[str]:
        """Processes that still have to do with this batch."""
        mark = f"HARNESS_HOME={self.folder / 'home'}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes():
                    found.append((path.parent / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue
        return found


def test_killed_workers_builders_and_lanes_lose_and_double_nothing(folder: Path) -> None:
    batch, dice = Batch(folder, 16), random.Random(5)
    driver = batch.start("--lanes", "2")
    rows: list[dict[str, Any]] = []
    assert driver.stdout is not None
    for line in driver.stdout:
        rows.append(json.loads(line))
        if len(rows) in (2, 4, 7, 9, 12):  # zygotes, workers, lanes, compilers: whatever there is
            time.sleep(dice.uniform(0.0, 0.2))
            victims = list(_processes_of(driver.pid))
            if victims:
                with contextlib.suppress(ProcessLookupError):  # it may have ended meanwhile
                    os.kill(dice.choice(victims), signal.SIGKILL)
    assert driver.wait() in (0, 1, 3)
    driver.stdout.close()
    assert driver.stderr is not None
    said = driver.stderr.read()
    driver.stderr.close()
    assert Counter(row["solution"] for row in rows) == Counter(batch.names), said
    assert sum(row["status"] != "PASSED" for row in rows) <= 5, said
    assert batch.left_over() == []


def test_a_killed_driver_goes_on_where_it_was(folder: Path) -> None:
    batch = Batch(folder, 12)
    driver = batch.start()
    assert driver.stdout is not None
    for _ in range(4):
        driver.stdout.readline()
    driver.kill()
    driver.communicate()
    deadline = time.monotonic() + 20
    while batch.left_over() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert batch.left_over() == []
    driver = batch.start()
    out, err = driver.communicate()
    assert driver.returncode == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert Counter(row["solution"] for row in rows) == Counter(batch.names)
    assert sum(row["stored"] for row in rows) >= 4
    with Store(folder / "home") as store:
        kept = Counter(record.solution_path for record in store.newest_passed("problem", "small", 1000))
    assert len(kept) == 12
    assert max(kept.values()) == 1


def test_a_problem_may_set_limits_and_a_flag_counts_over_them(harness: Harness, folder: Path) -> None:
    (folder / "problem.py").write_text(f"{PROBLEM}\nTIMEOUT_S = 7\nBUILD_TIMEOUT_S = 8.5\n")
    (folder / "answers" / "a.py").write_text(HONEST)
    arguments = ("evaluate", "answers", "--problem", "problem.py", "--case", "small", "--device", "cpu", "--json")
    found = []
    for options in ((), ("--timeout", "60")):
        (row,) = harness(*arguments, *options, cwd=folder, HARNESS_HOME=str(folder / "home")).rows
        found.append((row["status"], row["policy"]["timeout_s"], row["policy"]["build_timeout_s"]))
    assert found == [("PASSED", 7.0, 8.5), ("PASSED", 60.0, 8.5)]
    (folder / "problem.py").write_text(f"{PROBLEM}\nTIMEOUT_S = -1\n")
    ran = harness(*arguments, cwd=folder, HARNESS_HOME=str(folder / "home"))
    assert ran.code == 2
    assert "TIMEOUT_S is -1" in ran.err
