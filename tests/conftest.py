"""Fixtures that every test folder shares."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line has it, for judges in the tests' own process
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processors are the tests', which run side by side

import torch
from hypothesis import HealthCheck, settings

from harness.emulator.toolchain import build_runtime
from tests.fork_server import ForkServers

Made = TypeVar("Made")
REPOSITORY = Path(__file__).resolve().parent.parent

# What the user has set for the harness is not for the tests, which say by themselves what they set.
for name in [name for name in os.environ if name.startswith("HARNESS_") or name == "RAY_ADDRESS"]:
    del os.environ[name]
# Where nothing is kept of compiled modules, each of the thousand processes that tests start compiles the harness.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell ignores SIGINT for what it starts in the background, and processes that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, however slow the machine is, and nothing kept from one run for the next.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


#: Behind these fixtures processes import torch, or a compiler runs.
_SLOW_FIXTURES = {"harness", "home", "own_home", "shared_emulator", "fork_servers", "made_once"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what starts processes as slow, before pytest chooses by marks."""
    if _SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)  # behind a plugin that shuffles
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where torch finds none.

    Attacks on a GPU come first: other tests open the GPU in this process, which it then holds until it ends, and no
    speed is certified beside a process that holds the GPU.
    """
    items.sort(key=lambda item: item.path.name != "test_exploits_gpu.py")
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU: torch.cuda.is_available() is False here"))


def pytest_xdist_auto_num_workers() -> int:
    """Returns one process more than there are processors, since many tests wait for others' processes."""
    if wanted := os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return int(wanted)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 1


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Gives a test the same random numbers in this process, whichever tests ran before it."""
    random.seed(0)
    generators = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    for generator in (torch.default_generator, *generators):  # torch.manual_seed takes 100 times as long
        generator.manual_seed(0)


@pytest.fixture(autouse=True)
def _same_environment() -> Iterator[None]:
    """Takes back what a test, or torch's compiler on its behalf, sets in this process's environment."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys() - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of the test run share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@pytest.fixture(scope="session")
def made_once(shared: Path) -> Callable[[str, Callable[[], Made]], Made]:
    """Lets one process of the test run make what all need, under a name; the others wait, and read what it made.

    What is made says by itself where its files are: fixtures such as ``home`` are others in the process that asks.
    """

    def made(name: str, make: Callable[[], Made]) -> Made:
        path = shared / f"{name}.pickle"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                path.write_bytes(pickle.dumps(make()))
            value: Made = pickle.loads(path.read_bytes())
            return value

    return made


@pytest.fixture(scope="session")
def shared_emulator(shared: Path) -> Path:
    """The ``emulator`` folder of every home: whoever needs the runtime first builds it, for all processes."""
    folder = shared / "emulator"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def home(shared_emulator: Path, shared: Path, tmp_path_factory: pytest.TempPathFactory, forked_judges: None) -> Path:
    """A HARNESS_HOME for each process of the test run, which shares only builds: what is judged stays apart."""
    home = tmp_path_factory.mktemp("harness-home")
    (home / "emulator").symlink_to(shared_emulator)
    (shared / "builds").mkdir(exist_ok=True)
    (home / "builds").symlink_to(shared / "builds")
    return home


@pytest.fixture
def own_home(shared_emulator: Path, tmp_path: Path, forked_judges: None) -> Path:
    """A HARNESS_HOME for one test, in which nothing has been judged; the emulator's runtime is there."""
    build_runtime(shared_emulator, with_headers=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "emulator").symlink_to(shared_emulator)
    return tmp_path / "home"


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
def no_nvcc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CUDA toolkit whose nvcc does not run: a real one takes ten seconds for each solution that is checked."""
    toolkit = tmp_path_factory.mktemp("no-nvcc")
    for name, text in {"bin/nvcc": "#!/bin/sh\nexit 1\n", "include/cuda_runtime.h": ""}.items():
        (toolkit / name).parent.mkdir()
        (toolkit / name).write_text(text)
    (toolkit / "bin" / "nvcc").chmod(0o755)
    return toolkit


@pytest.fixture(scope="session")
def fork_servers(no_nvcc: Path) -> Iterator[ForkServers]:
    """Where command lines are forked from, once for each process of the test run. Without a GPU they find no nvcc."""
    variables = {} if torch.cuda.is_available() else {"CUDA_HOME": str(no_nvcc)}
    with contextlib.closing(ForkServers(variables)) as servers:
        yield servers


@pytest.fixture(scope="session")
def forked_judges(fork_servers: ForkServers) -> None:
    """Has evaluators of the test run's own process fork what they start."""
    fork_servers.plant()


@pytest.fixture(scope="session")
def harness(home: Path, fork_servers: ForkServers) -> Callable[..., Ran]:
    """Runs ``python -m harness`` with arguments, as a user would, from the repository's folder.

    Without a GPU it finds no nvcc, unless a test sets ``CUDA_HOME``.
    """
    usual = {**fork_servers.variables, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)}

    def run(*arguments: str | Path, cwd: Path = REPOSITORY, **environment: str) -> Ran:
        if arguments[:1] == ("evaluate",) and "HARNESS_HOME" not in environment:
            # What another test has judged in the home proves nothing here. A busy machine is no candidate's fault:
            # tests of the time limit say how long it is, and the last of several such options counts.
            arguments = ("evaluate", "--fresh", "--timeout", "600", *arguments[1:])
        env = {**os.environ, **usual, **environment}
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
