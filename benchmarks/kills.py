"""Kill what judges, at random moments: does every candidate get one verdict, and is nothing left behind?

    python -m benchmarks.kills --candidates 200 --kills 40
    python -m benchmarks.kills --candidates 100 --kills 12 --executor ray

Small candidates on the emulator, most right, some with a kernel to build, some wrong or not building, in a scratch
home; at random moments a process is killed with SIGKILL: a zygote, worker, builder, compiler or lane, or the command
itself, which is then given again. With ``--executor ray`` the lanes are on a cluster of two nodes on this machine, and
a whole node or the head is killed too. Afterwards: each candidate was printed once by the last command, what earlier
commands printed is there unchanged, the store has one verdict for each, other statuses than a candidate's own are no
more than there were kills, no process is left, and what killed ones left in the temporary folder is gone after another
command. Exit code 0 if all of this holds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.executors.result_cache import is_final
from harness.records.record import EvaluationRecord
from harness.records.store import Store

REPOSITORY = Path(__file__).resolve().parent.parent
#: Longest that processes of what was killed are waited for.
PATIENCE_S = 30.0
#: What becomes of a folder that a killed process left, an hour later.
HOUR_S = 3600
#: How often a first row is looked for: the first kill comes right behind it, however short the batch is.
FIRST_ROW_S = 0.01
PROBLEM = """
import torch
import torch.nn as nn

n = 8
CASES = {"small": {}, "large": {"n": 64}}


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def get_inputs():
    return [torch.randn(n)]


def get_init_inputs():
    return []
"""
HONEST = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.tanh()\n"
WRONG = HONEST.replace("x.tanh()", "x.sinh()")
KERNEL = '''
import torch
from torch.utils.cpp_extension import load_inline

extension = load_inline(
    name="copies",
    cpp_sources="",
    cuda_sources="""
__global__ void copy(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = tanhf(x[i]); }  // 0
extern "C" void run(const float* x, float* y, int n) { copy<<<1, 64>>>(x, y, n); }
""",
    is_python_module=False,
    no_implicit_headers=True,
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.tanh()
'''
BROKEN = KERNEL.replace("int i = threadIdx.x;", "int i = threadIdx.nothing;")
#: Of eight candidates behind each other those that are not just right, and what becomes of them.
KINDS = {0: (KERNEL, "PASSED"), 3: (WRONG, "WRONG_OUTPUT"), 5: (BROKEN, "BUILD_ERROR")}
#: Two nodes; ends one, or the head, or adds one, when it is told to.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
node = cluster.add_node(num_cpus=2)
print(cluster.address, flush=True)
for line in sys.stdin:
    if line == "add\\n":
        node = cluster.add_node(num_cpus=2)
    else:
        for process in (node if line == "node\\n" else cluster.head_node).live_processes():
            process[1].kill()
    print("done", flush=True)
cluster.shutdown()
"""


class Batch:
    """Candidates in a folder, a problem beside it, and commands over them.

    Args:
        folder: Where they are; its ``home`` is the commands' HARNESS_HOME.
        count: How many candidates.
        is_mixed: Of the kinds of ``KINDS``; otherwise all are right, and every eighth has a kernel.

    Attributes:
        promised: The status of each candidate, by its name.
    """

    def __init__(self, folder: Path, count: int, is_mixed: bool = False):
        self.folder, self.home, self.tmp = folder, folder / "home", folder / "tmp"
        for made in (self.home, self.tmp, folder / "answers"):
            made.mkdir(exist_ok=True)
        (folder / "problem.py").write_text(PROBLEM)
        self.promised: dict[str, str] = {}
        for number in range(count):
            text, status = KINDS.get(number % 8 if is_mixed or number % 8 == 0 else -1, (HONEST, "PASSED"))
            self.add(f"a{number:03}", f"{text.replace('// 0', f'// {number}')}# {number}\n", status)

    def add(self, name: str, text: str, status: str) -> None:
        """Write another candidate."""
        (self.folder / "answers" / f"{name}.py").write_text(text)
        self.promised[f"answers/{name}.py"] = status

    def start(self, *options: str, which: str = "answers") -> subprocess.Popen[str]:
        """Start a command over all candidates, or one."""
        command = [sys.executable, "-m", "harness", "evaluate", which, "--problem", "problem.py", "--json"]
        home = {"HARNESS_HOME": str(self.home), "TMPDIR": str(self.tmp), "PYTHONPATH": str(REPOSITORY)}
        return subprocess.Popen(
            [*command, "--case", "small", "--device", "cpu", *options],
            cwd=self.folder,
            env={**os.environ, **home},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def left_over(self) -> list[str]:
        """Processes that still have to do with this batch."""
        return [words for _, words in _processes(self.tmp)]

    def is_still(self) -> bool:
        """Whether all of them end."""
        return _comes_true(lambda: not self.left_over())


class Nodes:
    """A Ray cluster of two nodes, in a process of its own.

    Attributes:
        address: Where drivers join it.
    """

    def __init__(self) -> None:
        self._tmp = Path(tempfile.mkdtemp(prefix="k"))  # short, since Ray's sockets lie in it
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CLUSTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=REPOSITORY,
            env={**os.environ, "TMPDIR": str(self._tmp)},
            text=True,
        )
        self.address = self._said()

    def tell(self, what: str) -> None:
        """End the ``node`` or the ``head``, as a power failure would, or ``add`` a node."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert self._said() == "done"

    def judging(self) -> dict[int, str]:
        """Processes of the harness on its nodes, and their command lines."""
        return {process: words for process, words in _processes(self._tmp) if "harness" in words}

    def close(self) -> None:
        """End it all, what Ray has left of killed nodes too."""
        if self._process.poll() is None:
            self._process.communicate()
        for process, _ in _processes(self._tmp):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(self._tmp, ignore_errors=True)

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _processes(tmp: Path) -> Iterator[tuple[int, str]]:
    """Processes that began with this temporary folder, and their command lines."""
    mark = f"TMPDIR={tmp}"
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes().split(b"\0"):
                yield int(path.parent.name), (path.parent / "cmdline").read_text(errors="replace").replace("\0", " ")


def descendants(process: int) -> list[int]:
    """A process's children, and theirs."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.setdefault(_parent(path.parent), []).append(int(path.parent.name))
    found, waiting = [], [process]
    while waiting:
        born = parents.get(waiting.pop(), [])
        found += born
        waiting += born
    return found


def _comes_true(is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class Run:
    """A command whose lines are read as they come.

    Attributes:
        rows: What it has printed.
        strange: Lines among them that are none.
        said: What it has said on stderr.
    """

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process
        self.rows: list[dict[str, Any]] = []
        self.strange: list[str] = []
        self.said = ""
        self._readers = [threading.Thread(target=one) for one in (self._read_rows, self._read_words)]
        for reader in self._readers:
            reader.start()

    def ends_within(self, seconds: float) -> bool:
        """Wait so long for its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode is not None

    def close(self) -> None:
        """Read what is left, once it has ended."""
        for reader in self._readers:
            reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _read_rows(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                try:
                    self.rows.append(json.loads(line))
                except ValueError:
                    self.strange.append(line)

    def _read_words(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line


def _is_kept(row: dict[str, Any]) -> bool:
    """Tells whether the store answers for a result from now on."""
    return is_final(EvaluationRecord.from_json(json.dumps(row)))


@dataclass
class Killer:
    """Kills at random moments.

    Attributes:
        batch: What is judged.
        dice: Chooses the moments and the victims.
        kills: How many at most.
        between_s: Seconds between two: at least and at most.
        options: Further options of the command.
        on_cluster: Whether a cluster of two nodes judges.
        commands_too: Whether the command itself, or the cluster's head, may be killed.
        killed: What was killed, and how often.
        runs: The commands that were needed.
    """

    batch: Batch
    dice: random.Random
    kills: int
    between_s: tuple[float, float]
    options: Sequence[str] = ()
    on_cluster: bool = False
    commands_too: bool = True
    killed: Counter[str] = field(default_factory=Counter)
    runs: list[Run] = field(default_factory=list)

    def run(self) -> list[str]:
        """Give the command until it ends by itself; all that was wrong."""
        faults: list[str] = []
        while True:
            nodes = Nodes() if self.on_cluster else None
            try:
                is_whole = self._run_once(nodes)
                if nodes is not None and is_whole and not _comes_true(lambda nodes=nodes: not nodes.judging()):
                    faults.append(f"left on the cluster: {nodes.judging()}")
            finally:
                if nodes is not None:
                    nodes.close()
            if not self.batch.is_still():
                faults.append(f"left running: {self.batch.left_over()}")
            if is_whole or len(self.runs) > 2 * self.kills + 1:
                return faults + self._faults()

    def _run_once(self, nodes: Nodes | None) -> bool:
        """One command; whether it was neither killed nor lost its cluster or all of its lanes."""
        where = () if nodes is None else ("--executor", "ray", "--address", nodes.address)
        run = Run(self.batch.start(*where, *self.options))
        self.runs.append(run)
        is_whole = True
        while not run.ends_within(self.dice.uniform(*self.between_s) if run.rows else FIRST_ROW_S):
            if self.killed.total() < self.kills and run.rows:
                is_whole &= self._kill(run, nodes)
        run.close()
        return is_whole and len(run.rows) == len(self.batch.promised)

    def _kill(self, run: Run, nodes: Nodes | None) -> bool:
        """Kill something; whether the command can go on."""
        throw = self.dice.random()
        if self.commands_too and throw < 0.15:
            if nodes is not None and throw < 0.1:
                nodes.tell("head")
                self.killed["head"] += 1
                return not run.ends_within(240)  # it may have been done
            run.process.kill()
            self.killed["command"] += 1
            return False
        if nodes is not None and throw < 0.5:
            nodes.tell("node")
            nodes.tell("add")
            self.killed["node"] += 1
            return True
        victims = descendants(run.process.pid) if nodes is None else list(nodes.judging())
        with contextlib.suppress(OSError, IndexError):  # it may have ended meanwhile
            victim = self.dice.choice(victims)
            kind = kind_of(victim)
            os.kill(victim, signal.SIGKILL)
            self.killed[kind] += 1
        return True

    def _faults(self) -> list[str]:
        """What is wrong at the end."""
        last, found = self.runs[-1].rows, []
        printed = Counter(row["solution"] for row in last)
        if printed != Counter(self.batch.promised.keys()):
            wrong = {name: printed[name] for name in {*printed, *self.batch.promised} if printed[name] != 1}
            found.append(f"not printed once: {wrong}: {self.runs[-1].said}")
        told = {row["solution"]: row for row in last}
        for run in self.runs[:-1]:
            for row in run.rows:
                now = told.get(row["solution"], {})
                others = [name for name in {**row, **now} if row.get(name) != now.get(name) and name != "stored"]
                if _is_kept(row) and others:
                    found.append(f"{row['solution']} was {row['status']}; other now: {', '.join(others)}")
        found += [f"printed among results: {line!r}" for run in self.runs for line in run.strange]
        unlike = [row for row in last if row["status"] != self.batch.promised.get(row["solution"])]
        if len(unlike) > self.killed.total():
            found.append(f"more statuses than kills are others than promised: {Counter(r['status'] for r in unlike)}")
        with Store(self.batch.home) as store:
            verdicts = Counter(record.solution for record in store.records() if is_final(record))
        answered = {row["solution"] for row in last if _is_kept(row)}
        if verdicts != Counter(answered):
            found.append(f"verdicts in the store: {verdicts - Counter(answered)} too many")
        return found + self._left_in_folders()

    def _left_in_folders(self) -> list[str]:
        """What is still in the temporary folder after a later command, which also needs the locks of builds."""
        for path in self.batch.tmp.iterdir():
            os.utime(path, (time.time() - HOUR_S,) * 2)
        again = Run(self.batch.start("--fresh", which="answers/a000.py"))
        is_over = again.ends_within(120)
        again.process.kill()
        again.close()
        left = sorted(path.name for path in self.batch.tmp.iterdir() if path.name.startswith("harness-"))
        return [] if is_over and not left else [f"left in the temporary folder: {left}; {again.said}"]


def kind_of(process: int) -> str:
    """What a process is; a worker has its zygote's words, and a zygote its lane's.

    Raises:
        OSError: It has ended.
    """
    words = Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    if "harness.worker" not in words and "harness.executors" not in words:
        return "compiler or other"
    # A lane leads a group in its driver's session.
    return "lane" if os.getpgid(process) == process != os.getsid(process) else "worker or zygote"


def _parent(folder: Path) -> int:
    return int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])


def main() -> int:
    """Run from the command line; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--between", type=float, nargs=2, default=(0.1, 1.0), metavar="S", help="seconds between kills")
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--executor", choices=("local", "ray"), default="local")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        killer = Killer(
            Batch(Path(folder), options.candidates, is_mixed=True),
            random.Random(options.seed),
            options.kills,
            (options.between[0], options.between[1]),
            ("--lanes", str(options.lanes)),
            options.executor == "ray",
        )
        started = time.monotonic()
        faults = killer.run()
        seconds = time.monotonic() - started
    statuses = Counter(row["status"] for row in killer.runs[-1].rows)
    print(f"{options.candidates} candidates, {len(killer.runs)} commands, {seconds:.0f} s")
    print(f"killed: {dict(killer.killed)}; statuses: {dict(statuses)}")
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
