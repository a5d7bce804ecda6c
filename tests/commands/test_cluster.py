"""Tests a Ray cluster of two nodes on this machine: the same verdicts, and none lost with a node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.kills import BROKEN, PROBLEM, WRONG, Batch, Nodes
from harness.compilation.cache import BuildCache
from harness.executors import cluster
from harness.executors.plan import Job
from harness.executors.prebuild import PlannedWork
from harness.judge.policy import Policy
from harness.judge.process.time_limits import Limits
from harness.project.problems import read_problem
from harness.project.solutions import Candidate, read_solution
from tests.commands.test_many import folder

__all__ = ["folder"]  # a fixture


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    # For so long Ray looks for a lost head, one of its threads without a pause; by itself for a minute.
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "5")
    nodes = Nodes()
    yield nodes
    nodes.close()


def rows_of(driver: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert driver.stdout is not None
    for line in driver.stdout:
        yield json.loads(line)


def verdict(row: dict[str, Any]) -> tuple[str, list[str]]:
    """A record's status, and the bits of its outputs in the trials whose draws all candidates share."""
    return row["status"], row["digests"].get("output", [])[:-1]


def test_the_verdicts_are_those_of_one_process_and_a_lost_node_costs_none(folder: Path, nodes: Nodes) -> None:
    batch = Batch(folder, 10)
    batch.add("b_wrong", WRONG, "WRONG_OUTPUT")
    batch.add("b_broken", BROKEN, "BUILD_ERROR")
    out, _ = batch.start("--fresh").communicate()
    alone = {row["solution"]: verdict(row) for row in map(json.loads, out.splitlines())}
    seed = json.loads(out.splitlines()[0])["seed"]
    driver = batch.start("--fresh", "--seed", seed, "--executor", "ray", "--address", nodes.address, "--lanes", "2")
    rows = []
    for row in rows_of(driver):
        rows.append(row)
        if len(rows) == 4:
            nodes.tell("node")
    _, said = driver.communicate()
    assert Counter(row["solution"] for row in rows) == Counter(batch.promised.keys()), said
    assert {row["solution"]: verdict(row) for row in rows} == alone, said
    assert {row["problem_path"] for row in rows} == {str((folder / "problem.py").resolve())}
    assert {row["solution_path"] for row in rows} == {str((folder / name).resolve()) for name in batch.promised}
    nodes.close()
    assert batch.is_still(), batch.left_over()


def test_after_the_head_is_lost_the_same_command_goes_on(folder: Path, nodes: Nodes) -> None:
    batch = Batch(folder, 14)
    driver = batch.start("--executor", "ray", "--address", nodes.address, "--lanes", "2")
    assert driver.stdout is not None
    before = [json.loads(driver.stdout.readline())]
    nodes.tell("head")
    out, said = driver.communicate(timeout=180)
    before += map(json.loads, out.splitlines())
    # What its actors were at work on may get done without a head.
    assert len({row["solution"] for row in before}) == len(before) == (14 if driver.returncode == 0 else len(before)), (
        said
    )
    assert driver.returncode != 2, said
    nodes.close()
    assert batch.is_still(), batch.left_over()
    out, said = batch.start().communicate()
    rows = [json.loads(line) for line in out.splitlines()]
    assert Counter(row["solution"] for row in rows) == Counter(batch.promised.keys()), said
    assert {row["solution"] for row in before} <= {row["solution"] for row in rows if row["stored"]}


class Soon:
    """An answer of an actor: it is there when somebody has waited for it."""

    def __init__(self, value: Any):
        self.value, self.is_there = value, False


class Called:
    """A method of an actor that answers with a value."""

    def __init__(self, value: Any):
        self.value, self.calls = value, 0

    def remote(self, *_: object) -> Soon:
        self.calls += 1
        return Soon(self.value)


class Actor:
    """A builder that builds nothing, at once."""

    def __init__(self) -> None:
        self.opened, self.build, self.end = Called(None), Called(({}, {})), Called(None)


def ray_with(actors: list[Actor]) -> Any:
    """As much of Ray as its builders use."""

    def wait(answers: list[Soon], timeout: float, num_returns: int = 1) -> tuple[list[Soon], list[Soon]]:
        for answer in answers:
            answer.is_there = answer.is_there or timeout > 0
        return [one for one in answers if one.is_there], [one for one in answers if not one.is_there]

    def get(answer: Soon, timeout: float) -> Any:
        return answer.value

    errors = SimpleNamespace(RayError=RuntimeError)
    return SimpleNamespace(wait=wait, get=get, kill=lambda actor: actors.remove(actor), exceptions=errors)


def test_a_builder_that_was_placed_goes_on_building(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    actors: list[Actor] = []

    def make() -> Actor:
        actors.append(Actor())
        return actors[-1]

    (tmp_path / "problem.py").write_text(PROBLEM)
    problem = read_problem(tmp_path / "problem.py")
    now = [0.0]
    monkeypatch.setattr(cluster.time, "monotonic", lambda: now[0])
    with cluster.ClusterBuilders(ray_with(actors), make, BuildCache(tmp_path / "builds"), 1) as builders:
        for number in range(3):
            (tmp_path / f"{number}.py").write_text(f"from torch.utils import cpp_extension  # {number}")
            solution = read_solution(tmp_path / f"{number}.py", str(number))
            work = PlannedWork(Job(Candidate(problem, solution), ()), Policy("cpu", "0", Limits(1.0, 1.0)), (), ())
            builders.begin(work)
            assert work.build is not None
            work.build.result()
            now[0] += 0.6 * cluster.PLACE_LIMIT_S  # the third comes when a place would no longer be waited for
        (actor,) = actors
        assert (actor.opened.calls, actor.build.calls) == (1, 3)


def test_what_runs_on_nodes_imports_no_torch() -> None:
    program = "import sys, harness.executors.actors; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
