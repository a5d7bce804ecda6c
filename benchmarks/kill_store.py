"""Kill the harness at random moments of a batch on the CPU: does the store lose or double a record?

    python benchmarks/kill_store.py --moments 50 --seed 1

Starts ``evaluate --json`` on a few cheap solutions in a scratch home, kills that one process with SIGKILL after a
random time, and looks: every line that was printed is in the store, the file is sound, no worker or compiler is left,
no evaluation is there twice. Then the same command again, until it ends by itself; then another batch, until the
moments are used up. Exit code 0 if nothing was ever wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
#: Longest that a process of a killed harness is waited for.
PATIENCE_S = 30.0
SOLUTIONS = 3
PROBLEM = """\
import torch
import torch.nn as nn

n = 6
CASES = {{"full": {{}}, "odd": {{"n": 5}}, "one": {{"n": 1}}}}


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return torch.tanh(x * self.w)


def get_inputs():
    return [torch.randn(n, 3)]


def get_init_inputs():
    return []
"""
CASES = ("full", "odd", "one")


class Batch:
    """A scratch root and home with a small batch, and the commands that are killed in it.

    Args:
        folder: An empty folder.
        emulator: A folder with the emulator's runtime, to be linked; None to have it built.
    """

    def __init__(self, folder: Path, emulator: Path | None = None):
        self.root, self.home, self.tmp = (folder / name for name in ("root", "home", "tmp"))
        for made in (self.root / "problems", self.root / "solutions" / "tiny", self.home, self.tmp):
            made.mkdir(parents=True)
        if emulator is not None:
            (self.home / "emulator").symlink_to(emulator)
        (self.root / "problems" / "tiny.py").write_text(PROBLEM.format(name="Model"))
        for number in range(SOLUTIONS):
            text = PROBLEM.format(name="ModelNew") + f"# {number}\n"
            (self.root / "solutions" / "tiny" / f"s{number}.py").write_text(text)

    def renew(self) -> None:
        """Forget what was judged."""
        for path in self.home.glob("store.db*"):
            path.unlink()

    def run(self, seconds: float | None) -> tuple[bool, list[dict[str, Any]]]:
        """Run the command and kill it after a time (None for never).

        Returns:
            Whether it ended by itself, and the whole lines that it had printed.

        Raises:
            RuntimeError: It failed without having been killed.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", "evaluate", "--device", "cpu", "--json"],
            cwd=self.root,
            env={**os.environ, "HARNESS_HOME": str(self.home), "TMPDIR": str(self.tmp), "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        if process.returncode not in (0, -signal.SIGKILL):
            raise RuntimeError(f"the command ended with {process.returncode}: {err}")
        lines = [line for line in out.splitlines(keepends=True) if line.endswith("\n")]
        return process.returncode == 0, [json.loads(line) for line in lines]

    def faults(self, printed: list[dict[str, Any]]) -> list[str]:
        """What is wrong after a kill; empty where nothing is."""
        found = self._left_running()
        path = self.home / "store.db"
        if not path.exists():
            return found + (["there is no store, but lines were printed"] if printed else [])
        connection = sqlite3.connect(path)
        try:
            (sound,) = connection.execute("PRAGMA integrity_check").fetchone()
            tables = connection.execute("SELECT name FROM sqlite_master WHERE name = 'records'").fetchall()
            rows = connection.execute("SELECT record, identity, body FROM records").fetchall() if tables else []
        finally:
            connection.close()
        found += [] if sound == "ok" else [f"integrity_check: {sound}"]
        kept = {record: json.loads(body) for record, _, body in rows}
        for row in printed:
            stored = {**kept.get(row["record"], {}), "stored": row["stored"]}
            found += [] if stored == row else [f"{row['solution']} {row['case']} was printed and is not kept so"]
        if len({identity for _, identity, _ in rows}) != len(rows):
            found.append("an evaluation is there twice")
        return found

    def whole(self, printed: list[dict[str, Any]]) -> list[str]:
        """What is wrong at the end of a batch: each solution and case has one record, and was printed once."""
        wanted = sorted((f"tiny/s{number}", case) for number in range(SOLUTIONS) for case in CASES)
        told = sorted((row["solution"], row["case"]) for row in printed)
        connection = sqlite3.connect(self.home / "store.db")
        kept = sorted(connection.execute("SELECT solution, case_name FROM records").fetchall())
        connection.close()
        found = [] if told == wanted else [f"the last command printed {told}"]
        return found + ([] if kept == wanted else [f"the store holds {kept}"])

    def _left_running(self) -> list[str]:
        """Processes of the killed command that do not end by themselves."""
        end = time.monotonic() + PATIENCE_S
        while left := self._processes():
            if time.monotonic() > end:
                return [f"processes {left} were left running"]
            time.sleep(0.01)
        return []

    def _processes(self) -> list[int]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                text = b"".join((entry / name).read_bytes() for name in ("environ", "cmdline"))
            except OSError:
                continue
            if os.fsencode(self.tmp) in text:
                found.append(int(entry.name))
        return found


def kill_repeatedly(batch: Batch, moments: int, seed: int) -> list[str]:
    """Kill so many times, a printed line each, and let the last batch end; everything that was wrong."""
    chance = random.Random(seed)
    if not (batch.home / "emulator").exists():
        batch.run(None)  # builds what is built once
        batch.renew()
    started = time.monotonic()
    _, printed = batch.run(None)
    whole_s = time.monotonic() - started
    faults = batch.whole(printed)
    print(f"undisturbed: {whole_s:.1f} s, {len(printed)} records", flush=True)
    batch.renew()
    killed, ended, done = 0, 0, False
    while killed < moments or not done:
        seconds = chance.uniform(0.0, whole_s) if killed < moments else None
        done, printed = batch.run(seconds)
        found = batch.faults(printed) + (batch.whole(printed) if done else [])
        killed, ended = killed + (not done), ended + done
        faults += [f"moment {killed}: {one}" for one in found]
        fresh = sum(not row["stored"] for row in printed)
        words = "ended by itself" if done else f"moment {killed}: killed after {seconds:.2f} s"
        print(f"{words}: {fresh} new, {len(printed) - fresh} stored, {found or 'sound'}", flush=True)
        if done:
            batch.renew()
    print(f"killed {killed} times, {ended} batches ended, {len(faults)} faults", flush=True)
    return faults


def main() -> int:
    """Run from the command line; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kill-store-"))
    try:
        faults = kill_repeatedly(Batch(folder), arguments.moments, arguments.seed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
