"""Starts Python, and runs solution files on the emulator, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fork_server import ForkServers

REPOSITORY = Path(__file__).resolve().parents[2]

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
runtime = build_runtime(cache_dir, with_headers=True)
told = lambda *event: events.append(event)
loader = InlineLoader(solution, solution.read_text(), cached, out_dir, told, headers=runtime.headers)
session = EmulatorSession(runtime)
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


def run_on_emulator(
    servers: ForkServers, solution: Path, built: Path, cache: Path, **environment: str
) -> dict[str, Any]:
    """Runs a solution file on the emulator.

    Args:
        servers: Where the process is forked from, unless its variables count at its start.
        solution: The file. It may use ``session``.
        built: Where its builds are kept.
        cache: Where the emulator's libraries are kept.
        environment: Further environment variables.

    Returns:
        ``result`` (the file's global of that name) or what the build raised, ``events`` of the builds, the keys
        ``built``, and the runtime's ``reports``.
    """
    arguments = [str(solution), str(built), str(cache)]
    whole = {**os.environ, "PYTHONPATH": str(REPOSITORY), **environment}
    if servers.can_run(whole):
        code, out, err = servers.run(arguments, REPOSITORY, whole, _RUN_SOLUTION)
    else:
        process = start_python(_RUN_SOLUTION, *arguments, **environment)
        out, err = process.communicate()
        code = process.returncode
    assert code == 0, err
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer
