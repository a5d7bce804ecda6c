"""How many candidates a minute: 64 of group norm, as a search gives them, most right, some wrong, broken or hostile.

    python -m benchmarks.throughput --device cuda:0
    python -m benchmarks.throughput --device all --kill-lane 20
    python -m benchmarks.throughput --device cpu --share 8
    python -m benchmarks.throughput --device cuda:0 --served -- --forward-only

40 pass (three solutions, each under many names, so that every one is built), 10 compute wrong values, 6 do not build, 2
hang, 3 crash, 3 cheat; shuffled. The limit on running is max(10 s, 20 x eager): for group norm 10 s. With ``--share N``
one of N of each kind, at least one. With ``--kill-lane N`` a lane is killed when N results are there. With ``--served``
a client sends them all to ``serve`` at once. Prints candidates a minute, each kind's statuses and seconds, a digest of
all candidates and their statuses (the same whoever judges), how busy the GPU was, builds that the judged worker did not
have to make, and seconds by stage. Exit code 1 where a status is not what its kind promises, or one is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import table
from benchmarks.kills import descendants, kind_of
from harness.rendering.render_templates import find_template, render_variant
from harness.server.client import Client

REPOSITORY = Path(__file__).resolve().parent.parent
LIMIT_S = 10
PORT = 8079
#: What is said of a kind's seconds from being taken up to the record.
SECONDS = ("least s", "median s", "most s")
BASES = ("two_kernels", "fused", "streamed")


class Kind(NamedTuple):
    """A kind of candidate.

    Attributes:
        count: How many of 64.
        statuses: How they may end.
        change: A solution's text, made one of the kind.
    """

    count: int
    statuses: tuple[str, ...]
    change: Callable[[str], str]


def in_forward(lines: str) -> Callable[[str], str]:
    """Have the model's forward begin with these lines."""
    head = "    def forward(self, x: torch.Tensor) -> torch.Tensor:\n"

    def changed(text: str) -> str:
        before, found, after = text.rpartition(head)
        assert found
        return before + head + "".join(f"        {line}\n" for line in lines.splitlines()) + after

    return changed


def as_result(expression: str) -> Callable[[str], str]:
    """Have the model return an expression of what it computed, ``y``."""
    return lambda text: (
        f"{text}\n\n_forward = ModelNew.forward\n"
        f"ModelNew.forward = lambda self, x: (lambda y: {expression})(_forward(self, x))\n"
    )


def in_kernels(line: str) -> Callable[[str], str]:
    """Have the CUDA source hold a further line."""
    return lambda text: text.replace("__global__ void affine_gradients", f"{line}\n__global__ void affine_gradients", 1)


KINDS = {
    "passing": Kind(40, ("PASSED",), lambda text: text),
    "wrong": Kind(10, ("WRONG_OUTPUT",), as_result("y * 1.001")),
    "not building": Kind(6, ("BUILD_ERROR",), in_kernels("__device__ float broken() { return undeclared; }")),
    "hanging": Kind(2, ("TIMEOUT",), in_forward("while True:\n    pass")),
    "crashing": Kind(3, ("CRASHED",), in_forward("import os\nos.kill(os.getpid(), 11)")),
    "cheating": Kind(3, ("CHEATED",), in_forward("x.detach().zero_()")),
}


def written(folder: Path, share: int) -> dict[str, str]:
    """Write the candidates; the kind of each, by its file's path, in the order of the files."""
    kinds = [name for name, kind in KINDS.items() for _ in range(max(1, kind.count // share))]
    random.Random(64).shuffle(kinds)
    template = find_template(REPOSITORY, "group_norm")
    texts = [render_variant(REPOSITORY, template, base).text for base in BASES]
    found = {}
    for number, name in enumerate(kinds):
        text = in_kernels(f"// candidate {number}")(KINDS[name].change(texts[number % len(texts)]))
        path = folder / f"c{number:02}.py"
        path.write_text(text)
        found[str(path)] = name
    return found


@contextlib.contextmanager
def utilisation(device: str) -> Iterator[list[float]]:
    """Shares of time in which the (first) GPU was at work, one each 0.2 s, by NVML; none on the CPU or without it."""
    found: list[float] = []
    is_over = threading.Event()

    def sample() -> None:
        with contextlib.suppress(ImportError):
            import pynvml

            pynvml.nvmlInit()
            first = device.partition(":")[2].partition(",")[0]
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(first or 0))
            while not is_over.wait(0.2):
                found.append(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)

    thread = threading.Thread(target=sample)
    if device != "cpu":
        thread.start()
    try:
        yield found
    finally:
        is_over.set()
        if device != "cpu":
            thread.join()


def main() -> int:
    """Run the script; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0", help="as of evaluate")
    parser.add_argument("--case", help="[default: full; odd on the CPU]")
    parser.add_argument("--share", type=int, default=1, metavar="N", help="one of N of each kind")
    parser.add_argument("--home", type=Path, help="a HARNESS_HOME to judge in [default: a scratch one]")
    parser.add_argument("--kill-lane", type=int, metavar="N", help="kill a lane behind N results")
    parser.add_argument("--served", action="store_true", help="judge them through serve, the server's start included")
    parser.add_argument("options", nargs="*", help="further options of evaluate, behind --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="throughput-") as scratch, utilisation(options.device) as busy:
        folder = Path(scratch) / "candidates"
        folder.mkdir()
        kinds = written(folder, options.share)
        home = options.home or Path(scratch) / "home"
        case = options.case or ("odd" if options.device == "cpu" else "full")
        program = [sys.executable, "-m", "harness"]
        judge = ["--device", options.device, "--timeout", str(LIMIT_S), *options.options]
        path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "HARNESS_HOME": str(home), "PYTHONPATH": path}
        if options.served:
            rows, seconds = served([*program, "serve", "--port", str(PORT), *judge], environment, kinds, case)
            return report(rows, kinds, seconds, busy)
        started = time.monotonic()
        process = subprocess.Popen(
            [*program, "evaluate", str(folder), "--problem", "group_norm", "--json", "--case", case, *judge],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        rows: list[dict[str, Any]] = []
        for line in process.stdout:
            rows.append(json.loads(line))
            row = rows[-1]
            at = time.monotonic() - started
            print(f"{at:7.1f} s {row['status']:13} {row['total_s']:6.2f} s {row['solution']}", file=sys.stderr)
            if len(rows) == options.kill_lane:
                lane = next(one for one in descendants(process.pid) if kind_of(one) == "lane")
                os.kill(lane, signal.SIGKILL)
                print(f"{at:7.1f} s killed a lane", file=sys.stderr)
        process.wait()
        seconds = time.monotonic() - started
    return report(rows, kinds, seconds, busy)


def served(
    command: list[str], environment: dict[str, str], kinds: dict[str, str], case: str
) -> tuple[list[dict[str, Any]], float]:
    """Have a server judge them, sent at once; the records, and seconds from its start to the last verdict."""
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("listening"):
                break
            print(line, end="", file=sys.stderr)
        threading.Thread(target=process.stderr.read, daemon=True).start()
        client = Client(f"http://127.0.0.1:{PORT}")
        requests = [{"problem": "group_norm", "solution": Path(path).read_text(), "cases": [case]} for path in kinds]
        verdicts = list(client.stream(requests))
        seconds = time.monotonic() - started
        rows = []
        for path, verdict in zip(kinds, verdicts, strict=True):
            rows += [{**client.get(f"/records/{one['record']}"), "solution_path": path} for one in verdict.records]
    finally:
        process.terminate()
        process.wait()
    return rows, seconds


def spread(seconds: list[float]) -> tuple[str, ...]:
    """The least, the median and the most of these, as :data:`SECONDS` names them; dashes where there are none."""
    if not seconds:
        return ("-",) * len(SECONDS)
    return tuple(f"{found:.2f}" for found in (min(seconds), statistics.median(seconds), max(seconds)))


def rates(rows: list[dict[str, Any]], seconds: float, busy: list[float]) -> None:
    """Print candidates a minute, a digest of the verdicts, builds ahead, and seconds by stage."""
    built_ahead = sum(row["build_s"] == 0 for row in rows)
    print(f"{len(rows)} candidates in {seconds:.1f} s: {60 * len(rows) / seconds:.1f} a minute")
    told = sorted((row["digest"], row["status"]) for row in rows)
    print(f"verdicts: {hashlib.sha256(repr(told).encode()).hexdigest()[:16]}")
    print(f"built before their turn: {built_ahead} of {len(rows)}")
    if busy:
        print(f"the GPU was at work {100 * sum(busy) / len(busy):.0f} % of the time (NVML, every 0.2 s)")
    stages = Counter[str]()
    for row in rows:
        stages.update(row["stages_s"])
    header = ("stage", "seconds in all", "each", "share")
    shares = [(name, f"{s:.1f}", f"{s / len(rows):.2f}", f"{100 * s / seconds:.0f} %") for name, s in stages.items()]
    print(table(header, shares))


def report(rows: list[dict[str, Any]], kinds: dict[str, str], seconds: float, busy: list[float]) -> int:
    """Print what came of it; 1 where a candidate ended otherwise than its kind promises."""
    ends: dict[str, Counter[str]] = {name: Counter() for name in KINDS}
    for row in rows:
        ends[kinds[row["solution_path"]]][row["status"]] += 1
    wrong = [row for row in rows if row["status"] not in KINDS[kinds[row["solution_path"]]].statuses]
    rates(rows, seconds, busy)
    taken = {name: [row["total_s"] for row in rows if kinds[row["solution_path"]] == name] for name in KINDS}
    print(table(("kind", "ends", *SECONDS), [(name, dict(ends[name]), *spread(taken[name])) for name in KINDS]))
    for path in kinds.keys() - {row["solution_path"] for row in rows}:
        print(f"{kinds[path]}: {path}: no verdict", file=sys.stderr)
    for row in wrong:
        print(f"{kinds[row['solution_path']]}: {row['status']}: {row['message']}", file=sys.stderr)
    return 1 if wrong or len(rows) != len(kinds) else 0


if __name__ == "__main__":
    sys.exit(main())
