"""Fixtures for bad input: a folder, a store and a temporary folder per test file, and a check for leftovers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.emulator.toolchain import build_runtime

LIMIT_S = 120.0
REPOSITORY = Path(__file__).resolve().parents[2]
PROBLEM = """\
import torch
import torch.nn as nn

n = 6
CASES = {"full": {}, "odd": {"n": 5}}


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return torch.tanh(x * self.w)


def get_inputs():
    return [torch.randn(n, 3)]


def get_init_inputs():
    return [3]
"""
SOLUTION = """\
import mmap, os, signal, subprocess, sys, threading, time
import torch
import torch.nn as nn


class Passing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.clone()

    @staticmethod
    def backward(ctx, gradient):
        BACKWARD
        return gradient


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        INIT
        self.w = nn.Parameter(torch.ones(width))

    def forward(self, x):
        FORWARD
        return RESULT
"""


def solution(
    forward: str = "pass",
    init: str = "pass",
    backward: str = "pass",
    result: str = "Passing.apply(torch.tanh(x * self.w))",
    first: str = "",
) -> str:
    """An honest solution's text, with statements put in."""
    text = SOLUTION
    for hole, filling in (("FORWARD", forward), ("INIT", init), ("BACKWARD", backward), ("RESULT", result)):
        text = text.replace(hole, filling.replace("\n", "\n        "))
    return first + text


class Place:
    """A root with one problem, a home and a temporary folder.

    Args:
        harness: Runs the command line.
        folder: Where everything lies.
        runtime: The emulator's runtime, built once for all tests.
    """

    def __init__(self, harness: Callable[..., Any], folder: Path, runtime: Path):
        self._harness = harness
        self.root, self.home, self.tmp = folder / "root", folder / "home", folder / "tmp"
        for made in (self.root / "problems", self.root / "solutions", self.home, self.tmp):
            made.mkdir(parents=True)
        (self.home / "emulator").symlink_to(runtime)
        (self.root / "problems" / "tiny.py").write_text(PROBLEM)

    @property
    def environment(self) -> dict[str, str]:
        """What a command is run with here."""
        return {"HARNESS_HOME": str(self.home), "TMPDIR": str(self.tmp), "PYTHONPATH": str(REPOSITORY)}

    def __call__(self, *arguments: str | Path, **environment: str) -> Any:
        """Run ``python -m harness`` here and wait for it."""
        return self._harness(*arguments, cwd=self.root, **{**self.environment, **environment})

    def begin(
        self, *arguments: str | Path, prepare: Callable[[], None] = lambda: None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start ``python -m harness`` here, as from a terminal whatever the tests were started from."""

        def as_from_a_terminal() -> None:
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)  # what runs in the background is started with some ignored
            prepare()

        return subprocess.Popen(
            [sys.executable, "-m", "harness", *map(str, arguments)],
            cwd=self.root,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=as_from_a_terminal,
            **options,
        )

    @staticmethod
    def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
        """What a started command prints until it ends; one that does not end is killed, and the test fails."""
        try:
            return process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise

    def write(self, name: str, text: str | bytes) -> Path:
        """A file in the root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def left_behind(self) -> list[str]:
        """Files in the temporary folder, and processes that know it."""
        # Torch makes its compiler's folder when anything imports that.
        files = [path.name for path in self.tmp.iterdir() if not path.name.startswith("torchinductor")]
        return files + [f"process {number}" for number in self.processes()]

    def processes(self) -> list[int]:
        """Processes that know the temporary folder by their environment or arguments, or work in it."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                texts = [(entry / name).read_bytes() for name in ("environ", "cmdline")]
                if any(os.fsencode(self.tmp) in text for text in texts) or (entry / "cwd").readlink().is_relative_to(
                    self.tmp
                ):
                    found.append(int(entry.name))
            except OSError:  # it has ended, or is another user's
                continue
        return found


@pytest.fixture(scope="session")
def runtime(home: Path) -> Path:
    """The folder of the emulator's runtime."""
    build_runtime(home / "emulator")
    return home / "emulator"


@pytest.fixture(scope="module")
def place(harness: Callable[..., Any], runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One place for a file of tests."""
    return Place(harness, tmp_path_factory.mktemp("place"), runtime)


@pytest.fixture
def new_place(harness: Callable[..., Any], runtime: Path, tmp_path: Path) -> Place:
    """One place for a test."""
    return Place(harness, tmp_path / "place", runtime)
