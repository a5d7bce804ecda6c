"""Tests builds that are killed half-way or run twice at once, on the emulator and on a GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
HONEST = REPOSITORY / "tests" / "faults" / "group_norm.py"
DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)]


def command(device: str) -> list[str]:
    return [
        *(sys.executable, "-m", "harness", "evaluate", str(HONEST), "--problem", "group_norm", "--case", "odd"),
        *("--device", device, "--json"),
    ]


def environment(home: Path, scratch: Path) -> dict[str, str]:
    scratch.mkdir(exist_ok=True)
    return {**os.environ, "HARNESS_HOME": str(home), "TMPDIR": str(scratch), "PYTHONPATH": str(REPOSITORY)}


def start(device: str, home: Path, scratch: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(device),
        cwd=REPOSITORY,
        env=environment(home, scratch),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def wait_for_a_build(running: subprocess.Popen[str], scratch: Path) -> None:
    """Until a compiler's scratch files lie in a worker's build folder."""
    while running.poll() is None:
        # Not by a pattern: that fails where a folder vanishes meanwhile.
        workers = [walked for folder in scratch.glob("harness-worker-*") for walked in os.walk(folder)]
        if any(name.endswith((".cpp", ".cu", ".ninja", ".o")) for *_, names in workers for name in names):
            return
    pytest.fail("the command ended before it built anything")


@pytest.mark.parametrize("device", DEVICES)
def test_a_killed_build_neither_blocks_nor_poisons_the_next(
    device: str, tmp_path: Path, own_home: Path, harness: Callable[..., Any]
) -> None:
    scratch = tmp_path / "scratch"
    running = start(device, own_home, scratch)
    wait_for_a_build(running, scratch)
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    assert not list(own_home.glob("builds/*/*.so"))
    ran = harness(*command(device)[3:], HARNESS_HOME=str(own_home))
    assert [row["status"] for row in ran.rows] == ["PASSED"], ran.out + ran.err
    assert len(list(own_home.glob("builds/*/*.so"))) == 1
    warm = harness(*command(device)[3:], "--fresh", HARNESS_HOME=str(own_home))
    assert [(row["status"], row["build_s"]) for row in warm.rows] == [("PASSED", 0.0)]


@pytest.mark.parametrize("device", DEVICES)
def test_two_processes_may_build_the_same_thing_at_once(device: str, tmp_path: Path, own_home: Path) -> None:
    both = [start(device, own_home, tmp_path / f"scratch{number}") for number in range(2)]
    outputs = [running.communicate()[0] for running in both]
    assert [running.returncode for running in both] == [0, 0], outputs
    assert len(list(own_home.glob("builds/*/*.so"))) == 1
    assert not list(own_home.glob("builds/*/*.partial"))
