"""A Ray cluster of two nodes on this machine judges as one process does, and what is lost of it costs no verdict."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills import BROKEN, WRONG, Batch, Nodes
from tests.commands.test_many import folder

__all__ = ["folder"]  # a fixture


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    nodes.close()


def rows_of(driver: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert driver.stdout is not None
    for line in driver.stdout:
        yield json.loads(line)


def test_the_verdicts_are_those_of_one_process_and_a_lost_node_costs_none(folder: Path, nodes: Nodes) -> None:
    batch = Batch(folder, 14)
    batch.add("b_wrong", WRONG, "WRONG_OUTPUT")
    batch.add("b_broken", BROKEN, "BUILD_ERROR")
    out, _ = batch.start("--fresh").communicate()
    alone = {row["solution"]: (row["status"], row["outputs"]) for row in map(json.loads, out.splitlines())}
    seed = json.loads(out.splitlines()[0])["seed"]
    driver = batch.start("--fresh", "--seed", seed, "--executor", "ray", "--address", nodes.address, "--lanes", "2")
    rows = []
    for row in rows_of(driver):
        rows.append(row)
        if len(rows) == 4:
            nodes.tell("node")
    _, said = driver.communicate()
    assert Counter(row["solution"] for row in rows) == Counter(batch.promised.keys()), said
    assert {row["solution"]: (row["status"], row["outputs"]) for row in rows} == alone, said
    assert {row["problem_path"] for row in rows} == {str((folder / "problem.py").resolve())}
    assert {row["solution_path"] for row in rows} == {str((folder / name).resolve()) for name in batch.promised}
    nodes.close()
    assert batch.is_still(), batch.left_over()


def test_after_the_head_is_lost_the_same_command_goes_on(folder: Path, nodes: Nodes) -> None:
    batch = Batch(folder, 24)
    driver = batch.start("--executor", "ray", "--address", nodes.address, "--lanes", "2")
    assert driver.stdout is not None
    before = [json.loads(driver.stdout.readline())]
    nodes.tell("head")
    out, said = driver.communicate(timeout=180)
    before += map(json.loads, out.splitlines())
    # What its actors were at work on may get done without a head.
    assert len({row["solution"] for row in before}) == len(before) == (24 if driver.returncode == 0 else len(before)), (
        said
    )
    assert driver.returncode != 2, said
    nodes.close()
    assert batch.is_still(), batch.left_over()
    out, said = batch.start().communicate()
    rows = [json.loads(line) for line in out.splitlines()]
    assert Counter(row["solution"] for row in rows) == Counter(batch.promised.keys()), said
    assert {row["solution"] for row in before} <= {row["solution"] for row in rows if row["stored"]}
