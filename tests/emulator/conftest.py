"""Builds the emulator's libraries once per test run, and starts a process for code that runs on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.running import run_on_emulator, start_python

from .native import Emulator, build_kernels, build_runtime

_BUILD_RUNTIME = """
import pathlib, sys
from harness.emulator.toolchain import build_runtime
print(build_runtime(pathlib.Path(sys.argv[1])).core)
"""


@pytest.fixture(scope="session")
def runtime_cache(made_once: Callable[..., Path], shared: Path) -> Path:
    """A folder with the emulator's libraries, built by two processes at the same time, once a test run."""

    def build() -> Path:
        folder = shared / "emulator-tests"
        builders = [start_python(_BUILD_RUNTIME, folder) for _ in range(2)]
        ended = [(*builder.communicate(), builder.returncode) for builder in builders]
        assert [code for *_, code in ended] == [0, 0], ended
        assert ended[0][0] == ended[1][0]
        return folder

    return made_once("emulator-tests", build)


@pytest.fixture(scope="session")
def native(made_once: Callable[..., Path], shared: Path) -> Callable[..., Emulator]:
    """Loads a source's kernels into the test's own process.

    All kernels of a process run on one runtime. It and the kernels are built once a test run.
    """
    folder = shared / "native"
    folder.mkdir(exist_ok=True)
    runtime = made_once("native-runtime", lambda: build_runtime(folder))

    def load(source: Path, checked: bool = False) -> Emulator:
        name = f"native-{source.stem}{'-checked' if checked else ''}"
        return Emulator(runtime, made_once(name, lambda: build_kernels(source, runtime, checked)), checked)

    return load


@pytest.fixture
def run_solution(runtime_cache: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs the text of a solution file on the emulator, in a process of its own.

    Keywords are environment variables. See ``run_on_emulator`` for the answer.
    """

    def run(text: str, name: str = "solution.py", **environment: str) -> dict[str, Any]:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return run_on_emulator(path, tmp_path / "built", runtime_cache, **environment)

    return run
