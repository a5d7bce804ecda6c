"""Does a candidate cost more the more there are? Time for each and the judge's memory, on the emulator.

    python benchmarks/growth.py --sizes 16 64 256 --cached 1024

Each size is a command of its own in a scratch home: small candidates with a kernel each, all different, so all built;
those of ``--cached`` differ in their Python alone, and what they build is in the cache before. Prints seconds for each
candidate over the whole command's results but for the first (which waits for imports), and the judge's resident memory
behind a quarter of the results and behind the last. Exit code 1 where a candidate does not pass, or time for each or
memory grow by more than 20 %.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import table
from benchmarks.kills import PROBLEM

REPOSITORY = Path(__file__).resolve().parent.parent
MOST_GROWTH = 1.2
SOLUTION = '''\
import ctypes

import torch
from torch.utils.cpp_extension import load_inline

library = ctypes.CDLL(load_inline(
    name="small",
    cpp_sources="",
    cuda_sources="""
__global__ void apply(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = tanhf(x[i]);  // {kernel}
}}
extern "C" void run(const float* x, float* y, int n) {{ apply<<<(n + 31) / 32, 32>>>(x, y, n); }}
""",
    is_python_module=False,
    no_implicit_headers=True,
))


class ModelNew(torch.nn.Module):  # {name}
    def forward(self, x):
        y = torch.empty_like(x)
        library.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), x.numel())
        return y
'''


@dataclass(frozen=True)
class Grown:
    """What a command over so many candidates came to.

    Attributes:
        count: How many.
        seconds: For each but the first.
        early_mib: The judge's memory behind a quarter of them.
        late_mib: Behind the last.
        others: How many did not pass.
    """

    count: int
    seconds: float
    early_mib: float
    late_mib: float
    others: int


def measured(count: int, is_cached: bool, options: argparse.Namespace) -> Grown:
    """Judge so many candidates in a home of their own."""
    with tempfile.TemporaryDirectory(prefix="growth-") as name:
        folder = Path(name)
        (folder / "problem.py").write_text(PROBLEM)
        (folder / "answers").mkdir()
        for number in range(count):
            text = SOLUTION.format(kernel=0 if is_cached else number, name=number)
            (folder / "answers" / f"a{number:04}.py").write_text(text)
        if is_cached:
            _fill_cache(folder)
        process = subprocess.Popen(
            [*_command(folder / "answers"), "--ahead", str(options.ahead)] if options.ahead is not None
            else _command(folder / "answers"),
            cwd=folder, env=_environment(folder), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        times, memory, others = [], [], 0
        for line in process.stdout:
            times.append(time.monotonic())
            memory.append(_resident_mib(process.pid))
            others += json.loads(line)["status"] != "PASSED"
        process.wait()
        seconds = (times[-1] - times[0]) / (len(times) - 1)
        return Grown(len(times), seconds, memory[len(memory) // 4], memory[-1], others)


def _command(answers: Path) -> list[str]:
    program = [sys.executable, "-m", "harness", "evaluate", str(answers), "--problem", "problem.py", "--case", "large"]
    return [*program, "--device", "cpu", "--forward-only", "--json"]


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "HARNESS_HOME": str(folder / "home"), "PYTHONPATH": str(REPOSITORY)}


def _fill_cache(folder: Path) -> None:
    """Have the first candidate built, and give what it built to all: they build the same."""
    first, *others = sorted((folder / "answers").glob("*.py"))
    subprocess.run([*_command(first), "--fresh"], cwd=folder, env=_environment(folder), capture_output=True, check=True)
    builds = folder / "home" / "builds"
    for path in others:
        shutil.copytree(builds / _digest(first), builds / _digest(path))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _resident_mib(process: int) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)


def main() -> int:
    """Run the script; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[16, 64, 256])
    parser.add_argument("--cached", type=int, nargs="*", default=[1024])
    parser.add_argument("--ahead", type=int)
    options = parser.parse_args()
    is_good = True
    for is_cached, sizes in ((False, options.sizes), (True, options.cached)):
        found = [measured(size, is_cached, options) for size in sizes]
        if not found:
            continue
        header = (
            "built before" if is_cached else "built now",
            "seconds each",
            "MiB at a quarter",
            "MiB at the end",
            "not passed",
        )
        rows = [
            (one.count, f"{one.seconds:.3f}", f"{one.early_mib:.0f}", f"{one.late_mib:.0f}", one.others)
            for one in found
        ]
        print(table(header, rows), flush=True)
        least = min(one.seconds for one in found)
        is_good &= all(one.seconds <= MOST_GROWTH * least for one in found)
        is_good &= all(one.late_mib <= MOST_GROWTH * one.early_mib and not one.others for one in found)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
