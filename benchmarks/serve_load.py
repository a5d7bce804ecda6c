"""Load on ``serve``: many clients, some of them killed, a lane and the server killed, too; is every verdict given once?

    python -m benchmarks.serve_load --candidates 200 --clients 64

A server on the loopback address with a scratch home judges distinct texts of one small problem on the emulator, most
right, some wrong, some with a kernel to build. Each client is a thread with connections of its own, which sends its
share one after another and waits for each verdict; one in ten breaks its connection while it waits, and another client
takes over what it had sent. Behind a third of the verdicts a lane is killed with SIGKILL, behind two thirds the
server, which then starts again. Afterwards: each candidate has one verdict, the right one; the store has one record of
each. The same candidates then go through ``evaluate -`` in a home of its own. Exit code 0 if all of this holds.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import queue
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.kills import HONEST, KERNEL, PROBLEM, REPOSITORY, WRONG
from harness.server.client import Client

#: No request and no process is waited for longer.
LIMIT_S = 1800.0
PORT = 8078
#: More than a client ever asks for.
LONGEST_SHARE = 100_000
COMMAND = [
    *(sys.executable, "-m", "harness", "evaluate", "-", "--json"),
    *("--problem", "tanh", "--device", "cpu", "--case", "small"),
]


def texts(count: int) -> list[tuple[str, str]]:
    """Distinct candidates with the verdict that each deserves: of ten two are wrong and one has a kernel."""
    kinds = {0: (KERNEL, "PASSED"), 3: (WRONG, "WRONG_OUTPUT"), 7: (WRONG, "WRONG_OUTPUT")}
    made = []
    for number in range(count):
        text, status = kinds.get(number % 10, (HONEST, "PASSED"))
        made.append((f"{text}\n# candidate {number}\n", status))
    return made


def variables(home: Path) -> dict[str, str]:
    """The environment of the server and of the command."""
    return {**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": str(REPOSITORY)}


@dataclass
class Server:
    """The server that is tried, with its scratch project and home."""

    folder: Path
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts it and waits until it listens."""
        options = ["--port", str(PORT), "--device", "cpu", "--root", str(self.folder), "--quota", "100000"]
        command = [sys.executable, "-m", "harness", "serve", *options]
        self.process = subprocess.Popen(command, env=variables(self.folder / "home"), stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if line.startswith("listening"):
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def lane(self) -> int:
        """The process of its lane."""
        assert self.process is not None
        (judge,) = children(self.process.pid, "harness.executors.service")
        return children(judge, "harness.executors.lane_start")[0]

    def kill(self) -> None:
        """Ends it with SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Ends it as a user does."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)


def children(number: int, words: str) -> list[int]:
    """The child processes whose command line has these words."""
    found = []
    for one in Path(f"/proc/{number}/task").glob("*/children"):
        for child in one.read_text().split():
            with contextlib.suppress(OSError):
                if words in Path(f"/proc/{child}/cmdline").read_text().replace("\0", " "):
                    found.append(int(child))
    return found


@dataclass
class Load:
    """What the clients share: the candidates that are left, and what came back."""

    left: queue.Queue[int]
    wanted: list[tuple[str, str]]
    verdicts: dict[int, list[str]] = field(default_factory=dict)
    latencies_s: list[float] = field(default_factory=list)
    gone: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self, is_killed: bool) -> None:
        """Asks for one candidate after another; a client that is killed has sent its second one and leaves."""
        client = Client(f"http://127.0.0.1:{PORT}")
        for turn in range(LONGEST_SHARE):
            try:
                number = self.left.get_nowait()
            except queue.Empty:
                return
            asked: dict[str, object] = {"problem": "tanh", "solution": self.wanted[number][0], "cases": ["small"]}
            if is_killed and turn == 1:
                leave(asked)
                with self.lock:
                    self.gone += 1
                self.left.put(number)  # who takes over sends the same, and must get the same evaluation
                return
            began = time.monotonic()
            verdict = client.evaluate(asked, deadline_s=LIMIT_S)
            with self.lock:
                self.latencies_s.append(time.monotonic() - began)
                self.verdicts.setdefault(number, []).append(verdict.records[0]["status"] if verdict.records else "none")


def leave(asked: dict[str, object]) -> None:
    """Sends a candidate and breaks the connection while it waits for the verdict."""
    headers = {"Content-Type": "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
        connection.request("POST", "/evaluations", body=json.dumps(asked), headers=headers)
        id = json.loads(connection.getresponse().read())["id"]
        connection.request("GET", f"/evaluations/{id}?wait=30")


@contextlib.contextmanager
def project() -> Iterator[Path]:
    """Makes a scratch project with two homes that share the emulator's runtime, which is built."""
    with tempfile.TemporaryDirectory(prefix="harness-load-") as name:
        folder = Path(name)
        (folder / "problems").mkdir()
        (folder / "problems" / "tanh.py").write_text(PROBLEM)
        for home in ("home", "home_of_command"):
            (folder / home).mkdir()
        (folder / "home_of_command" / "emulator").symlink_to(folder / "home" / "emulator")
        (folder / "home" / "emulator").mkdir()
        warm = [*COMMAND, "--root", name]
        line = json.dumps({"source": HONEST + "# warm\n"})
        subprocess.run(warm, input=line, env=variables(folder / "home"), text=True, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        yield folder


def through_the_command(folder: Path, wanted: list[tuple[str, str]]) -> float:
    """Seconds in which ``evaluate -`` judges the same candidates."""
    lines = "".join(json.dumps({"source": text}) + "\n" for text, _ in wanted)
    began = time.monotonic()
    ran = subprocess.run(
        [*COMMAND, "--ahead", "2", "--root", str(folder)], input=lines, text=True, capture_output=True,
        env=variables(folder / "home_of_command"),
    )  # fmt: skip
    seconds = time.monotonic() - began
    found = [json.loads(line)["status"] for line in ran.stdout.splitlines()]
    assert sorted(found) == sorted(status for _, status in wanted), Counter(found)
    return seconds


def main() -> int:
    """Runs the load and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--no-kills", action="store_true", help="Kill nothing.")
    options = parser.parse_args()
    wanted = texts(options.candidates)
    with project() as folder:
        server = Server(folder)
        server.start()
        load = Load(queue.Queue(), wanted)
        for number in range(len(wanted)):
            load.left.put(number)
        kills = not options.no_kills
        began = time.monotonic()
        clients = [
            threading.Thread(target=load.work, args=(kills and number % 10 == 9,), daemon=True)
            for number in range(options.clients)
        ]
        for client in clients:
            client.start()
        try:
            for share, kill in ((1 / 3, "lane"), (2 / 3, "server")) if kills else ():
                while len(load.verdicts) < share * len(wanted):
                    assert time.monotonic() - began < LIMIT_S
                    time.sleep(0.05)
                if kill == "lane":
                    os.kill(server.lane(), signal.SIGKILL)
                else:
                    server.kill()
                    server.start()
            for client in clients:
                client.join(LIMIT_S)
            load.work(False)  # what the last one to leave has left
            seconds = time.monotonic() - began
        finally:
            server.end()
        with contextlib.closing(sqlite3.connect(folder / "home" / "store.db")) as store:
            records, distinct = store.execute("SELECT count(*), count(DISTINCT digest) FROM records").fetchone()
            rows = dict(store.execute("SELECT state, count(*) FROM evaluations GROUP BY state"))
        statuses = Counter(status for found in load.verdicts.values() for status in found)
        right = all(load.verdicts.get(number) == [status] for number, (_, status) in enumerate(wanted))
        whole = right and records == distinct == len(wanted) + 1 and rows == {"finished": len(wanted)}
        command_s = through_the_command(folder, wanted)
    cuts = statistics.quantiles(load.latencies_s, n=20)
    print(f"candidates {len(wanted)}, clients {options.clients}, of which {load.gone} left; verdicts {dict(statuses)}")
    print(f"records {records - 1}, evaluations {rows}: " + ("each once" if whole else "NOT EACH ONCE"))
    print(f"serve     {seconds:7.1f} s  {60 * len(wanted) / seconds:7.1f} candidates a minute")
    print(f"evaluate  {command_s:7.1f} s  {60 * len(wanted) / command_s:7.1f} candidates a minute")
    print(f"latency   median {statistics.median(load.latencies_s):.1f} s, 95 % {cuts[-1]:.1f} s")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
