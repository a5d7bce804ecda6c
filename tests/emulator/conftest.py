"""Loads kernels on the emulator into the test's process, and starts a process for code that runs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.emulator.toolchain import build_runtime
from tests.emulator.running import run_on_emulator
from tests.fork_server import ForkServers

from .native import ORDERS, Emulator, build_kernels


@pytest.fixture(scope="session")
def native(made_once: Callable[..., Path], shared: Path, shared_emulator: Path) -> Callable[..., Emulator]:
    """Loads a source's kernels into the test's own process.

    All kernels of a process run on one runtime, the one of all tests. The kernels are built once a test run.
    """
    folder = shared / "native"
    folder.mkdir(exist_ok=True)
    runtime = build_runtime(shared_emulator).core

    def load(source: Path, checked: bool = False) -> Emulator:
        name = f"native-{source.stem}{'-checked' if checked else ''}"
        return Emulator(runtime, made_once(name, lambda: build_kernels(source, runtime, folder, checked)), checked)

    return load


@pytest.fixture
def emulator(built: Emulator) -> Iterator[Emulator]:
    """The kernels that a test file's fixture ``built`` loads, in a test of their own."""
    built.begin()
    yield built
    built.reset()


@pytest.fixture(params=ORDERS)
def ordered(request: pytest.FixtureRequest, emulator: Emulator) -> Emulator:
    """The emulator in each order of threads and blocks."""
    emulator.runtime.cuemu_set_order(ORDERS[request.param], 7)
    return emulator


@pytest.fixture
def run_solution(fork_servers: ForkServers, shared_emulator: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs the text of a solution file on the emulator, in a process of its own.

    Keywords are environment variables. See ``run_on_emulator`` for the answer.
    """

    def run(text: str, name: str = "solution.py", **environment: str) -> dict[str, Any]:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return run_on_emulator(fork_servers, path, tmp_path / "built", shared_emulator, **environment)

    return run
