"""Tests Nsight Compute: parsing its CSV, its refusals, and running a solution under it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DeviceError, ProblemError, ToolchainError
from harness.judge.process.time_limits import Limits
from harness.profiling import ncu
from harness.profiling.figures import METRICS, KernelFigures, Stall, parsed
from harness.profiling.ncu import Target, TargetFailed, find_ncu, measured, refused
from harness.project.problems import read_problem
from harness.project.solutions import Candidate, read_solution
from harness.report.profile import print_figures, size_text
from harness.system.text import kernel_name

pytestmark = pytest.mark.slow

COLUMNS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "CC")
UNITS = {
    "gpu__time_duration.sum": "ns",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "dram__bytes_read.sum": "byte",
    "dram__bytes_write.sum": "byte",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "%",
    "launch__registers_per_thread": "register/thread",
    "lts__t_sector_hit_rate.pct": "%",
}
OWN = "void spaces::normalise<4, (bool)1>(const float *, float *, int)"
TORCHS = "<unnamed>::elementwise_kernel(int, std::array<char *, (unsigned long)2>)"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def values(duration: str, **more: str) -> dict[str, str]:
    """The metrics of a launch; those not named are as in most of these tests."""
    stalls = {
        "long_scoreboard": "3.5",
        "barrier": "0.25",
        "lg_throttle": "12.75",
        "math_pipe_throttle": "0",
        "wait": "1",
    }
    found = {
        "gpu__time_duration.sum": duration,
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": "80",
        "dram__bytes_read.sum": "1,000,000,512",
        "dram__bytes_write.sum": "2,048",
        "sm__warps_active.avg.pct_of_peak_sustained_active": "61.5",
        "launch__registers_per_thread": "40",
        "lts__t_sector_hit_rate.pct": "33.3",
        **{STALL.format(reason): value for reason, value in stalls.items()},
    }
    return found | more


def page(*launches: tuple[str, dict[str, str]], units: dict[str, str] = UNITS, metrics: Sequence[str] = METRICS) -> str:
    """What ``ncu --csv --page raw`` prints: its own lines, the header, the units, a row for each launch."""
    lines = [
        "==PROF== Connected to process 4711 (/usr/bin/python3.12)",
        *(f'==PROF== Profiling "{name}" - 0: 0%....50%....100% - 9 passes' for name, _ in launches),
        "==PROF== Disconnected from process 4711",
    ]
    rows = [[*COLUMNS, *metrics], [""] * len(COLUMNS) + [units.get(metric, "inst") for metric in metrics]]
    for number, (name, told) in enumerate(launches):
        place = [str(number), "4711", "python3.12", "127.0.0.1", name, "1", "7", "(256, 1, 1)", "9.0"]
        rows.append([*place, *(told[metric] for metric in metrics)])
    return "\n".join([*lines, *(",".join(f'"{cell}"' for cell in row) for row in rows)]) + "\n"


def test_figures_are_read_with_their_units() -> None:
    (kernel,) = parsed(page((OWN, values("2500000"))), kernel_name)
    assert kernel == KernelFigures(
        name="spaces::normalise<4, (bool)1>",
        launches=1,
        duration_ms=2.5,
        dram_percent=80.0,
        dram_read_bytes=1_000_000_512.0,
        dram_written_bytes=2048.0,
        occupancy_percent=61.5,
        registers=40,
        l2_hit_percent=33.3,
        stalls=(Stall("lg_throttle", 12.75), Stall("long_scoreboard", 3.5)),
    )


def test_older_units_and_scaled_ones_are_understood() -> None:
    units = UNITS | {"gpu__time_duration.sum": "usecond", "dram__bytes_read.sum": "Gbyte", "dram__bytes_write.sum": "?"}
    (kernel,) = parsed(page((OWN, values("2.5", **{"dram__bytes_read.sum": "7.5"})), units=units))
    assert (kernel.duration_ms, kernel.dram_read_bytes, kernel.dram_written_bytes) == (0.0025, 7.5e9, None)


def test_launches_of_a_kernel_are_taken_together() -> None:
    dram = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
    text = page(
        (OWN, values("3000000", **{dram: "90", "launch__registers_per_thread": "40", "dram__bytes_write.sum": "10"})),
        (TORCHS, values("500000")),
        (OWN, values("1000000", **{dram: "50", "launch__registers_per_thread": "48", "dram__bytes_write.sum": "30"})),
    )
    own, torchs = parsed(text, kernel_name)
    assert (own.launches, own.duration_ms, own.total_ms) == (2, 2.0, 4.0)
    assert (own.dram_percent, own.registers, own.dram_written_bytes) == (80.0, 48, 20.0)
    assert (torchs.name, torchs.launches) == ("<unnamed>::elementwise_kernel", 1)


def test_what_the_device_does_not_have_is_unknown() -> None:
    (kernel,) = parsed(page((OWN, dict.fromkeys(METRICS, "n/a"))))
    assert kernel == KernelFigures(OWN, 1)
    (short,) = parsed(page((OWN, values("1000")), metrics=METRICS[:1]))
    assert (short.duration_ms, short.dram_percent, short.stalls) == (0.001, None, ())


@pytest.mark.parametrize(
    "text", ["", "==PROF== Connected\n==WARNING== No kernels were profiled.\n", page(), '"a","b"\n']
)
def test_no_rows_are_no_kernels(text: str) -> None:
    assert parsed(text) == []


@pytest.mark.parametrize(
    ("code", "said", "found", "kind", "words"),
    [
        (0, "==PROF== Disconnected", True, None, ""),
        (1, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", False, DeviceError, "NVreg_Restrict"),
        (0, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", False, DeviceError, "SYS_ADMIN"),
        (0, "==WARNING== No kernels were profiled.", False, ToolchainError, "recorded no kernel"),
        (None, "==PROF== Profiling", True, TargetFailed, "--timeout"),
        (9, "==ERROR== Unknown metric x\n==ERROR== Giving up", True, ToolchainError, "Unknown metric x; Giving up"),
        (3, "line 4: RuntimeError: CUDA error", False, ToolchainError, "line 4: RuntimeError: CUDA error"),
        (-11, "", False, ToolchainError, "SIGSEGV"),
    ],
)
def test_refusals_are_told(code: int | None, said: str, found: bool, kind: type | None, words: str) -> None:
    error = refused(code, said, found)
    assert (error is None) == (kind is None)
    if kind is not None:
        assert type(error) is kind
        assert words in str(error)


def test_where_ncu_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def install(path: Path) -> Path:
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(ncu, "TOOLKIT", tmp_path / "cuda" / "bin" / "ncu")
    monkeypatch.setattr(ncu, "PACKAGES", tmp_path / "opt")
    with pytest.raises(ToolchainError, match="conda install -c nvidia nsight-compute"):
        find_ncu()
    install(tmp_path / "opt" / "2024.3.2" / "ncu")
    newest = install(tmp_path / "opt" / "2025.10.0" / "ncu")
    install(tmp_path / "opt" / "2025.3.1" / "ncu")
    assert find_ncu() == newest
    toolkit = install(tmp_path / "cuda" / "bin" / "ncu")
    assert find_ncu() == toolkit
    on_path = install(tmp_path / "bin" / "ncu")
    assert find_ncu() == on_path


PROBLEM = """
import torch
import torch.nn as nn

rows = 5
CASES = {"full": {}, "small": {"rows": 2}}


class Model(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(7) * factor)

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(rows, 7)]


def get_init_inputs():
    return [3.0]
"""
#: Writes a line for each forward: whether it has gradients, and its shape.
SOLUTION = """
import os
import torch
import torch.nn as nn


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, dy):
        note("backward")
        x, weight = ctx.saved_tensors
        return dy * weight, (dy * x).sum(0)


def note(word):
    with open(NOTES, "a") as file:
        file.write(word + "\\n")


class ModelNew(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(7) * factor)

    def forward(self, x):
        note(f"{torch.is_grad_enabled()} {tuple(x.shape)} {float(self.weight[0])} {os.getcwd()}")
        return Scale.apply(x, self.weight)
"""
#: Stands for ncu: runs what it is given, writes the log that it is told to, and notes its arguments.
NCU = """#!{python}
import json, pathlib, subprocess, sys

here = pathlib.Path({folder!r})
arguments = sys.argv[1:]
(here / "arguments.json").write_text(json.dumps(arguments))
start = arguments.index("off") + 1
code = subprocess.run(arguments[start:]).returncode
log = pathlib.Path(arguments[arguments.index("--log-file") + 1])
log.write_text((here / "page.csv").read_text())
sys.exit(code or {code})
"""


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[..., tuple[Target, Path, Path]]:
    """Writes a problem, a solution and an ncu: what is to be run, that ncu, and the solution's notes."""

    def prepare(solution: str = SOLUTION, code: int = 0, text: str = "", **limits: float) -> tuple[Target, Path, Path]:
        notes, fake = tmp_path / "notes.txt", tmp_path / "ncu"
        (tmp_path / "problem.py").write_text(PROBLEM)
        (tmp_path / "answer.py").write_text(solution.replace("NOTES", repr(str(notes))))
        (tmp_path / "page.csv").write_text(text or page((OWN, values("1000"))))
        fake.write_text(NCU.format(python=sys.executable, folder=str(tmp_path), code=code))
        fake.chmod(0o755)
        candidate = Candidate(read_problem(tmp_path / "problem.py"), read_solution(tmp_path / "answer.py", "answer.py"))
        seconds = Limits(limits.get("run_s", 60.0), limits.get("build_s", 60.0))
        return Target(candidate, {"rows": 2}, "cpu", seconds, tmp_path / "home"), fake, notes

    return prepare


def test_a_solution_is_run_alone_and_then_watched(prepared: Callable[..., Any], tmp_path: Path) -> None:
    target, fake, notes = prepared()
    home = tmp_path / "home" / "builds" / target.candidate.solution.digest
    home.mkdir(parents=True)
    (home / f"{'a' * 64}.so").write_bytes(b"..9normaliseILi4E..")
    (kernel,) = measured(target, fake)
    assert (kernel.name, kernel.own, kernel.duration_ms) == ("spaces::normalise<4, (bool)1>", True, 0.001)
    arguments = json.loads((tmp_path / "arguments.json").read_text())
    assert arguments[arguments.index("--metrics") + 1].split(",") == list(METRICS)
    for option, value in (("--page", "raw"), ("--clock-control", "none"), ("--profile-from-start", "off")):
        assert arguments[arguments.index(option) + 1] == value
    words = notes.read_text().splitlines()
    assert len(words) == 2 * 3 * 3  # alone and watched; two to warm up and one; forward, forward, backward
    first, second, third = (line.partition(" /")[0] for line in words[:3])
    assert (first, second, third) == ("False (2, 7) 3.0", "True (2, 7) 3.0", "backward")
    folder = Path(words[0].rpartition(" ")[2])
    assert folder != Path.cwd()
    assert not folder.exists()


def test_a_solution_that_does_not_run_is_told_with_its_line(prepared: Callable[..., Any]) -> None:
    target, fake, _ = prepared(SOLUTION.replace("x * weight\n\n", "x * missing\n\n"))
    with pytest.raises(TargetFailed, match=r"does not run outside the judge(.|\n)*line \d+: NameError: name 'missing'"):
        measured(target, fake)


def test_a_solution_that_ends_its_process_is_told(prepared: Callable[..., Any]) -> None:
    target, fake, _ = prepared(SOLUTION.replace('note("backward")', "os.kill(os.getpid(), 11)"))
    with pytest.raises(TargetFailed, match="SIGSEGV"):
        measured(target, fake)


def test_a_solution_without_an_end_is_ended(
    prepared: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, fake, _ = prepared(run_s=0.5, build_s=0.5)
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any):
            super().__init__(*arguments, **options)
            started.append(self)

    endless = tmp_path / "python"
    endless.write_text("#!/bin/sh\nexec sleep 1000\n")
    endless.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(endless))
    monkeypatch.setattr(subprocess, "Popen", Noted)
    with pytest.raises(TargetFailed, match="within --build-timeout and --timeout"):
        measured(target, fake)
    assert started
    for process in started:
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)


def test_a_problem_that_does_not_run_is_the_problems_fault(prepared: Callable[..., Any], tmp_path: Path) -> None:
    target, fake, _ = prepared()
    (tmp_path / "problem.py").write_text(PROBLEM.replace("torch.randn(rows, 7)", "torch.randn(rows, none)"))
    with pytest.raises(ProblemError, match="none"):
        measured(target, fake)


def test_ncus_own_failure_is_told(prepared: Callable[..., Any]) -> None:
    target, fake, _ = prepared(code=7, text="==ERROR== Failed to load the driver\n")
    with pytest.raises(ToolchainError, match="ncu ended with exit code 7: Failed to load the driver"):
        measured(target, fake)


def test_the_table_says_what_its_columns_mean(capsys: pytest.CaptureFixture[str]) -> None:
    kernels = parsed(page((OWN, values("3000000")), (TORCHS, dict.fromkeys(METRICS, "n/a"))), kernel_name)
    print_figures(kernels, "p/s", "full", "cuda:0")
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("spaces::normalise")]
    for word in ("torch", "3", "100.0 %", "80 %", "1 GB", "2.05 kB", "33 %", "62 %", "40", "lg_throttle 12.8"):
        assert word in line
    assert "space in the queue of memory instructions" in out
    assert "barrier" not in out


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "-"), (0, "0 B"), (999, "999 B"), (4096, "4.1 kB"), (7.52e9, "7.52 GB"), (3e15, "3e+03 TB")],
)
def test_sizes_are_readable(size: float | None, text: str) -> None:
    assert size_text(size) == text
