"""Tests builds ahead of a candidate's turn: wherever it builds, and whatever else it does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.compilation.cache import BuildCache
from harness.executors.tools import tools_for
from harness.judge.evaluation.builder import Refused, build_ahead
from harness.judge.policy import Policy
from harness.judge.process.time_limits import Limits
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.process.workers import Workers
from harness.project.problems import read_problem
from harness.project.solutions import Candidate, read_solution
from tests.judge import in_process

PROBLEM = """
import torch

N = 1 << 40

class Model(torch.nn.Module):
    def __init__(self, scale, shift):
        super().__init__()

    def forward(self, x, power):
        return x

def get_inputs():
    return [torch.rand(N), 3]

def get_init_inputs():
    return [2.0, torch.ones(N)]
"""
SOLUTION = """
import os
import torch
from torch.utils.cpp_extension import load_inline

def build(text="__global__ void nothing() {}", name="late"):
    assert torch.cuda.is_available()
    return load_inline(
        name=name, cpp_sources="", cuda_sources=text, is_python_module=False, no_implicit_headers=True
    )

def check(x):
    assert x.is_cuda and x.device.type == "cuda" and x.shape == (1 << 40,) and x.dtype == torch.float32

AT_IMPORT

class ModelNew(torch.nn.Module):
    def __init__(self, scale, shift):
        super().__init__()
        assert scale == 2.0
        check(shift)
        self.weight = torch.nn.Parameter(torch.zeros(1 << 40, device="cuda"))
        check(self.weight.to("cuda:0"))
        IN_INIT

    def forward(self, x, power):
        assert power == 3
        check(torch.nn.functional.relu(x.cuda() + self.weight))
        IN_FORWARD
        return x
"""
PLACES = ("AT_IMPORT", "IN_INIT", "IN_FORWARD")
BROKEN = "build('__global__ void broken() { nonsense; }', 'broken')"


class Ahead:
    """Builds candidates ahead, in workers that see no GPU."""

    def __init__(self, folder: Path, home: Path):
        self.cache = BuildCache(folder / "builds")
        self.log = ""
        self._folder, self._home = folder, home

    def build(self, problem: str = PROBLEM, run_s: float = 60, **code: str) -> Refused:
        text = SOLUTION
        for place in PLACES:
            text = text.replace(place, code.get(place, "pass"))
        (self._folder / "problem.py").write_text(problem)
        (self._folder / "answer.py").write_text(text)
        self._candidate = Candidate(
            read_problem(self._folder / "problem.py"), read_solution(self._folder / "answer.py", "answer")
        )
        libraries = tools_for("cpu", self._home).libraries
        workers = Workers("cpu", libraries, memory_bytes=None, zygote=in_process.ZYGOTE)

        @contextlib.contextmanager
        def opened() -> Iterator[WorkerHandle]:
            with contextlib.closing(workers.take()) as worker:
                yield worker
                self.log += worker.said()

        with contextlib.closing(workers):
            return build_ahead(opened, self._candidate, {}, self.cache, Policy("cpu", "00", Limits(run_s, 300)))

    @property
    def libraries(self) -> int:
        return len(self.cache.libraries(self._candidate.solution.digest))

    @property
    def refusals(self) -> dict[str, tuple[str, str]]:
        return self.cache.refusals(self._candidate.solution.digest)


@pytest.fixture
def ahead(tmp_path: Path, home: Path) -> Ahead:
    return Ahead(tmp_path, home)


@pytest.mark.parametrize("place", PLACES)
def test_it_builds_wherever_the_solution_does(ahead: Ahead, place: str) -> None:
    assert ahead.build(**{place: "build()"}) == {}
    assert ahead.libraries == 1


def test_a_forward_runs_only_if_nothing_was_built_before(ahead: Ahead) -> None:
    ahead.build(IN_INIT="build()", IN_FORWARD="print('called')")
    assert "called" not in ahead.log
    ahead.build(IN_FORWARD="print('called')")
    assert "called" in ahead.log


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 11)", "os._exit(0)", "raise ValueError", "while True: pass"])
def test_what_was_built_is_kept_however_the_candidate_ends(ahead: Ahead, end: str) -> None:
    assert (
        ahead.build(
            run_s=3 if end[0] == "w" else 60, IN_INIT=f"build(); {end}" if end[0] != "w" else f"build()\n        {end}"
        )
        == {}
    )
    assert ahead.libraries == 1


def test_a_refusal_that_the_candidate_swallows_is_remembered(ahead: Ahead) -> None:
    swallowed = f"try:\n            {BROKEN}\n        except Exception:\n            build()"
    refused = ahead.build(IN_INIT=swallowed)
    assert ahead.libraries == 1
    assert len(refused) == 1
    assert all("nonsense" in message for message, _ in refused.values())
    assert ahead.refusals == refused


def test_a_problem_whose_functions_need_values_leaves_the_import(ahead: Ahead) -> None:
    problem = PROBLEM.replace("torch.rand(N), 3", "torch.rand(4), int(torch.rand(4).sum().item())")
    ahead.build(problem, AT_IMPORT="build()", IN_INIT="print('made')")
    assert ahead.libraries == 1
    assert "made" not in ahead.log


def test_a_builder_that_lies_about_its_builds_puts_nothing_into_the_cache(ahead: Ahead, tmp_path: Path) -> None:
    lie = (
        "from harness.wire.replies import Building; import gc\n"
        "        worker = next(one for one in gc.get_objects() if type(one).__name__ == 'Worker')\n"
        "        worker._send(Building('end', 'x', {'a' * 64: 'no.so', '../x': '/etc/passwd'}, {'../y': ('m', 'l')}))\n"
    )
    ahead.build(IN_INIT=lie)
    assert ahead.libraries == 0
    assert ahead.refusals == {}
    assert not list(tmp_path.rglob("*.json"))


def test_a_builder_for_a_gpu_says_that_it_has_one(ahead: Ahead, tmp_path: Path) -> None:
    """It sees none, so a candidate that asks must still get to its build."""
    ahead.build()
    with contextlib.closing(Workers.that_build("cuda:0", {}, (9, 0), in_process.ZYGOTE)) as workers:
        logs = []

        @contextlib.contextmanager
        def opened() -> Iterator[WorkerHandle]:
            with contextlib.closing(workers.take()) as worker:
                yield worker
                logs.append(worker.said())

        text = (tmp_path / "answer.py").read_text().replace("        return x\n", "        print('forward')\n")
        (tmp_path / "gpu.py").write_text(
            text + "\nassert torch.zeros(1).cuda().is_cuda\nassert torch.cuda.get_device_capability() == (9, 0)\n"
        )
        candidate = Candidate(read_problem(tmp_path / "problem.py"), read_solution(tmp_path / "gpu.py", "gpu"))
        build_ahead(opened, candidate, {}, ahead.cache, Policy("cuda:0", "00", Limits(60, 300)))
    assert "forward" in "".join(logs)
