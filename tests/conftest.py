"""Fixtures that every test folder shares."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line has it, for judges in the tests' own process

import torch

from tests.fork_server import ForkServers

Made = TypeVar("Made")
REPOSITORY = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where torch finds none."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU: torch.cuda.is_available() is False here"))


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[], Made]], Made]:
    """Lets one process of the test run make what all need, under a name; the others wait, and read what it made."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def made(name: str, make: Callable[[], Made]) -> Made:
        path = folder / f"{name}.pickle"
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                path.write_bytes(pickle.dumps(make()))
            value: Made = pickle.loads(path.read_bytes())
            return value

    return made


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A HARNESS_HOME that the whole test run shares, so that the emulator's runtime is built once."""
    return tmp_path_factory.mktemp("harness-home")


@dataclass(frozen=True)
class Ran:
    """A finished command line."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The JSON objects on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture(scope="session")
def fork_servers() -> Iterator[ForkServers]:
    """Where command lines are forked from, once for each process of the test run."""
    with contextlib.closing(ForkServers()) as servers:
        yield servers


@pytest.fixture(scope="session")
def harness(home: Path, fork_servers: ForkServers) -> Callable[..., Ran]:
    """Runs ``python -m harness`` with arguments, as a user would, from the repository's folder."""

    def run(*arguments: str | Path, cwd: Path = REPOSITORY, **environment: str) -> Ran:
        if arguments[:1] == ("evaluate",) and "HARNESS_HOME" not in environment:
            arguments = (
                "evaluate",
                "--fresh",
                *arguments[1:],
            )  # what another test has judged in the shared home proves nothing here
        env = {**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY), **environment}
        words = [*map(str, arguments)]
        if fork_servers.can_run(env):
            return Ran(*fork_servers.run(words, cwd, env))
        finished = subprocess.run(
            [sys.executable, "-m", "harness", *words], cwd=cwd, env=env, capture_output=True, text=True
        )
        return Ran(finished.returncode, finished.stdout, finished.stderr)

    return run


@pytest.fixture(scope="session")
def evaluate_row(harness: Callable[..., Ran]) -> Callable[..., dict[str, Any]]:
    """Evaluates one file on one case and returns its JSON object; the exit code must fit the status."""

    def run(path: Path, problem: str | Path, *options: str) -> dict[str, Any]:
        ran = harness("evaluate", path, "--problem", problem, "--json", "--device", "cpu", *options)
        assert ran.code in (0, 1), ran.err
        (row,) = ran.rows
        assert (ran.code == 0) == (row["status"] == "PASSED")
        return row

    return run
