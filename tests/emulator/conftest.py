"""Builds the emulator's libraries once per test run, and starts a process for code that runs on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .native import Emulator, build_kernels, build_runtime

REPOSITORY = Path(__file__).resolve().parents[2]

_BUILD_RUNTIME = """
import pathlib, sys
from harness.emulator.toolchain import build_runtime
print(build_runtime(pathlib.Path(sys.argv[1])).core)
"""

_RUN_SOLUTION = """
import json, pathlib, runpy, sys, warnings
warnings.filterwarnings("ignore", "Failed to initialize NumPy")
import torch, torch.utils.cpp_extension
from harness.emulator.device import emulated_cuda
from harness.compilation.errors import BuildFailed, Unsupported
from harness.emulator.inline import InlineLoader
from harness.emulator.session import EmulatorSession
from harness.emulator.toolchain import build_runtime

solution, out_dir, cache_dir = map(pathlib.Path, sys.argv[1:])
events = []
cached = {path.stem: path for path in out_dir.glob("*.so")}
loader = InlineLoader(solution, solution.read_text(), cached, out_dir, lambda *event: events.append(event))
session = EmulatorSession(build_runtime(cache_dir))
torch.utils.cpp_extension.load_inline = loader.load_inline
torch.utils.cpp_extension.load = loader.load
answer = {"events": events}
with emulated_cuda():
    try:
        answer["result"] = runpy.run_path(str(solution), init_globals={"session": session}).get("result")
    except BuildFailed as failure:
        answer["failed"] = failure.message
        answer["log"] = failure.log
    except Unsupported as refusal:
        answer["unsupported"] = [refusal.construct, refusal.file, refusal.line, refusal.remedy]
answer["built"] = sorted(loader.built)
answer["reports"] = session.take_reports()
print(json.dumps(answer))
"""


def start_python(code: str, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    """Starts Python on a text, with the repository importable."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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

    The answer holds ``result`` (the file's global of that name) or what the build raised, ``events`` of the builds,
    the keys ``built``, and the runtime's ``reports``. The file may use ``session``.
    """

    def run(text: str, name: str = "solution.py", **environment: str) -> dict[str, Any]:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        process = start_python(_RUN_SOLUTION, path, tmp_path / "built", runtime_cache, **environment)
        out, err = process.communicate()
        assert process.returncode == 0, err
        answer: dict[str, Any] = json.loads(out.splitlines()[-1])
        return answer

    return run
