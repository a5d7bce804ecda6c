"""A Ray cluster of two nodes on this machine judges as one process does, and what is lost of it costs no verdict."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands.test_lines import WRONG
from tests.commands.test_many import BROKEN, REPOSITORY, Batch, folder

__all__ = ["folder"]  # a fixture

#: Two nodes; ends one, or the head, when it is told to.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
node = cluster.add_node(num_cpus=2)
print(cluster.address, flush=True)
for line in sys.stdin:
    for process in (node if line == "node\\n" else cluster.head_node).live_processes():
        process[1].kill()
    print("ended", flush=True)
cluster.shutdown()
"""


class Nodes:
    """The cluster, in a process of its own."""

    def __init__(self) -> None:
        self._mark = f"CLUSTER_OF_A_TEST={uuid.uuid4()}"
        name, _, value = self._mark.partition("=")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CLUSTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=REPOSITORY,
            env={**os.environ, name: value},
            text=True,
        )
        self.address = self._said()

    def end(self, which: str) -> None:
        """End the ``node`` or the ``head``, as a power failure would."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{which}\n")
        self._process.stdin.flush()
        assert self._said() == "ended"

    def close(self) -> None:
        """End it all, what Ray has left of killed nodes too."""
        if self._process.poll() is None:
            self._process.communicate()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


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
    for name, text in (("b_wrong", WRONG), ("b_broken", BROKEN)):
        (folder / "answers" / f"{name}.py").write_text(text)
        batch.names.add(f"answers/{name}.py")
    out, _ = batch.start("--fresh").communicate()
    alone = {row["solution"]: (row["status"], row["outputs"]) for row in map(json.loads, out.splitlines())}
    seed = json.loads(out.splitlines()[0])["seed"]
    driver = batch.start("--fresh", "--seed", seed, "--executor", "ray", "--address", nodes.address, "--lanes", "2")
    rows = []
    for row in rows_of(driver):
        rows.append(row)
        if len(rows) == 4:
            nodes.end("node")
    _, said = driver.communicate()
    assert Counter(row["solution"] for row in rows) == Counter(batch.names), said
    assert {row["solution"]: (row["status"], row["outputs"]) for row in rows} == alone, said
    assert {row["solution_path"] for row in rows} == {str((folder / name).resolve()) for name in batch.names}
    nodes.close()
    assert nothing_is_left(batch)


def test_after_the_head_is_lost_the_same_command_goes_on(folder: Path, nodes: Nodes) -> None:
    batch = Batch(folder, 24)
    driver = batch.start("--executor", "ray", "--address", nodes.address, "--lanes", "2")
    assert driver.stdout is not None
    before = [json.loads(driver.stdout.readline())]
    nodes.end("head")
    out, said = driver.communicate(timeout=180)
    before += map(json.loads, out.splitlines())
    # What its actors were at work on may get done without a head.
    assert len({row["solution"] for row in before}) == len(before) == (24 if driver.returncode == 0 else len(before)), (
        said
    )
    assert driver.returncode != 2, said
    nodes.close()
    assert nothing_is_left(batch)
    out, said = batch.start().communicate()
    rows = [json.loads(line) for line in out.splitlines()]
    assert Counter(row["solution"] for row in rows) == Counter(batch.names), said
    assert {row["solution"] for row in before} <= {row["solution"] for row in rows if row["stored"]}


def nothing_is_left(batch: Batch) -> bool:
    """Whether all processes of a batch end, those of lanes whose node is gone within moments."""
    deadline = time.monotonic() + 20
    while batch.left_over() and time.monotonic() < deadline:
        time.sleep(0.1)
    return batch.left_over() == []
