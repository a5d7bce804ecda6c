"""Does the harness agree with its peers? Each solution timed by it, by Triton's `do_bench`, and by torch's profiler.

    python -m benchmarks.peers --case full --json peers.json

For each solution: an evaluation by the harness's own judge, whose medians these are, then the same file in a plain
process (`python -m benchmarks.plain`), which knows nothing of the harness's timer. Prints a row for each solution and
direction: the harness's milliseconds, and each peer's with the harness's over it. `do_bench` flushes the L2 cache as
the harness does; it queues calls, where the harness waits for the device before and after each, which adds some 0.02 ms
to a call. `unflushed` calls may find in the cache what the last one left; `kernels` leaves launches and gaps out.

The difference from `do_bench`, and that from the sum of kernels, must each be no more than its bound. Exit code 1 where
one is, 2 where the call is wrong or there is no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import LIMITS, Budget, count, parser, positive, program, save, say, session_on_gpu, table
from harness.compilation.nvcc import cuda_home
from harness.errors import HarnessError
from harness.executors.session import Session
from harness.judge.evaluation.candidate_judge import CandidateJudge
from harness.judge.policy import Policy, new_secret
from harness.project.paths import project_root
from harness.project.solutions import Candidate, select
from harness.records.record import Status

DIRECTIONS = ("forward", "forward_backward")
REPOSITORY = Path(__file__).resolve().parent.parent
#: Longest that a plain process may take, its build included.
PLAIN_LIMIT_S = 300.0
LAST_WORDS = 500


@dataclass(frozen=True)
class Row:
    """A solution in one direction, in milliseconds; None where something was not measured.

    Attributes:
        solution: Its name.
        direction: ``forward`` or ``forward_backward``.
        repeat: Number of the repetition, from 0.
        harness: The harness's median.
        do_bench: Triton's.
        unflushed: The median of calls in a row without a flush.
        kernels: The sum of kernels by torch's profiler.
    """

    solution: str
    direction: str
    repeat: int
    harness: float | None
    do_bench: float | None = None
    unflushed: float | None = None
    kernels: float | None = None

    def over(self, peer: float | None) -> float | None:
        """The harness's time over a peer's."""
        return None if self.harness is None or not peer else self.harness / peer

    def holds(self, do_bench_bound: float, kernels_bound: float) -> bool:
        """Whether both differences are known and no larger than their bounds, shares of the peer's time."""
        bounds = ((self.do_bench, do_bench_bound), (self.kernels, kernels_bound))
        ratios = [(self.over(peer), bound) for peer, bound in bounds]
        return all(ratio is not None and abs(ratio - 1) <= bound for ratio, bound in ratios)


def rows_of(
    solution: str, repeat: int, harness_ms: Mapping[str, float | None], peers: Mapping[str, Mapping[str, float | None]]
) -> list[Row]:
    """A row for each direction that the harness or the peers have measured.

    Args:
        solution: Its name.
        repeat: Number of the repetition, from 0.
        harness_ms: The record's medians by direction.
        peers: What ``benchmarks.plain`` printed; empty where it failed.
    """
    return [
        Row(solution, direction, repeat, harness_ms.get(direction), **peers.get(direction, {}))
        for direction in DIRECTIONS
        if harness_ms.get(direction) is not None or direction in peers
    ]


def rows_table(rows: Iterable[Row], do_bench_bound: float, kernels_bound: float) -> str:
    """All rows, with ratios, and the difference from ``do_bench``."""
    header = ["solution", "direction", "harness ms", "do_bench ms", "harness over it", "difference"]
    header += ["unflushed ms", "harness over it", "kernels ms", "harness over it"]
    header += [f"holds ({do_bench_bound:.3g}, {kernels_bound:.3g})"]
    cells = []
    for row in rows:
        ratio = row.over(row.do_bench)
        cells.append(
            [
                row.solution,
                row.direction,
                _figure(row.harness),
                _figure(row.do_bench),
                _figure(ratio),
                None if ratio is None else f"{ratio - 1:+.1%}",
                _figure(row.unflushed),
                _figure(row.over(row.unflushed)),
                _figure(row.kernels),
                _figure(row.over(row.kernels)),
                row.holds(do_bench_bound, kernels_bound),
            ]
        )
    return table(header, cells)


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def environment(device: str) -> dict[str, str]:
    """A plain process's environment: torch's own loader finds nvcc and ninja, and builds for this GPU alone."""
    major, minor = torch.cuda.get_device_capability(device)
    home = cuda_home()
    return {
        **os.environ,
        **({"CUDA_HOME": str(home)} if home is not None else {}),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH", "")])),
        "TORCH_CUDA_ARCH_LIST": f"{major}.{minor}",
    }


def build_ahead(candidates: Sequence[Candidate], variables: Mapping[str, str]) -> None:
    """Import each file once, side by side: torch keeps what that builds. One that fails fails again, and is told."""
    command = [sys.executable, "-c", "import runpy, sys; runpy.run_path(sys.argv[1])"]
    with ThreadPoolExecutor(8) as pool:
        builds = [
            pool.submit(subprocess.run, [*command, one.solution.path], env=variables, capture_output=True)
            for one in candidates
        ]
        for build in builds:
            build.result()


def plain_ms(
    candidate: Candidate, options: argparse.Namespace, variables: Mapping[str, str]
) -> dict[str, dict[str, float | None]]:
    """What peers say, by direction.

    Raises:
        HarnessError: The process failed.
    """
    command = [sys.executable, "-m", "benchmarks.plain", candidate.solution.path]
    command += ["--problem", candidate.problem.path.resolve(), "--case", options.case, "--device", options.device]
    command += ["--rep-ms", str(options.rep_ms)]
    try:
        ran = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PLAIN_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise HarnessError(f"the plain process took longer than {PLAIN_LIMIT_S:g} s") from None
    lines = ran.stdout.splitlines()
    if ran.returncode or not lines:
        raise HarnessError(f"the plain process ended with {ran.returncode}: {ran.stderr.strip()[-LAST_WORDS:]}")
    found: dict[str, dict[str, float | None]] = json.loads(lines[-1])
    return found


def harness_ms(session: Session, candidate: Candidate, case: str) -> dict[str, float | None]:
    """The harness's medians by direction, from a record made for it.

    Raises:
        HarnessError: The solution did not pass.
    """
    policy = Policy(session.device, new_secret(), LIMITS)
    judge = CandidateJudge(candidate, policy, session.surroundings, session.workers, baseline=session.baseline)
    with contextlib.closing(judge):  # the worker's memory is free when the plain process starts
        record = judge.evaluate(case, candidate.problem.case(case), trials=1)
    if record.status is not Status.PASSED:
        raise HarnessError(f"{record.status}: {record.message}")
    if record.message:
        say(f"{candidate.solution.name}: {record.message}")
    return {"forward": record.forward_ms, "forward_backward": record.forward_backward_ms}


def run(
    session: Session, candidates: Sequence[Candidate], options: argparse.Namespace, rows: list[Row]
) -> dict[str, str]:
    """Measure every solution; rows go to ``rows`` as they come.

    Returns:
        What failed, by solution.
    """
    budget, failed = Budget(options.budget_s), {}
    variables = environment(session.device)
    say(f"building {len(candidates)} solutions for plain processes")
    build_ahead(candidates, variables)
    for repeat in range(options.repeats):
        for candidate in candidates:
            name = candidate.solution.name
            if budget.is_spent:
                say(f"{name}, repeat {repeat + 1}: left out, the budget is spent")
                continue
            try:
                mine = harness_ms(session, candidate, options.case)
                torch.cuda.empty_cache()
                peers = plain_ms(candidate, options, variables)
            except HarnessError as error:
                failed[name] = str(error)
                say(f"{name}: {error}")
                continue
            found = rows_of(name, repeat, mine, peers)
            rows += found
            for row in found:
                say(
                    f"{name}, {row.direction}: harness {_figure(row.harness)}, do_bench {_figure(row.do_bench)}, "
                    f"unflushed {_figure(row.unflushed)}, kernels {_figure(row.kernels)} ms"
                )
            save(options.json, as_json(session, options, rows, failed))
    return failed


def as_json(
    session: Session, options: argparse.Namespace, rows: Sequence[Row], failed: Mapping[str, str]
) -> dict[str, Any]:
    """Everything, for a file."""
    return {
        "case": options.case,
        "environment": session.surroundings.environment,
        "bounds": {"do_bench": options.do_bench_bound / 100, "kernels": options.kernels_bound / 100},
        "rows": [asdict(row) for row in rows],
        "failed": dict(failed),
    }


def arguments() -> argparse.ArgumentParser:
    """The script's options."""
    made = parser(__doc__)
    made.add_argument("selectors", nargs="*", help="as for `evaluate` (default: every solution)")
    made.add_argument("--case", default="full")
    made.add_argument("--repeats", type=count, default=1, help="of all of it (default: 1)")
    made.add_argument("--rep-ms", type=positive, default=200.0, help="what each do_bench is to take (default: 200)")
    for peer in ("do-bench", "kernels"):
        made.add_argument(f"--{peer}-bound", type=positive, default=3.0, metavar="PERCENT", help="(default: 3)")
    return made


def main() -> int:
    """Run from the command line; the exit code."""
    options = arguments().parse_args()

    def work() -> int:
        candidates = select(project_root(options.root), options.selectors, None)
        for candidate in candidates:
            candidate.problem.case(options.case)
        bounds = options.do_bench_bound / 100, options.kernels_bound / 100
        rows: list[Row] = []
        try:
            with session_on_gpu(options) as session:
                save(options.json, as_json(session, options, (), {}))
                failed = run(session, candidates, options, rows)
        finally:  # what there is by then is worth its GPU time
            if rows:
                print(rows_table(rows, *bounds), flush=True)
        return 0 if rows and not failed and all(row.holds(*bounds) for row in rows) else 1

    return program(work)


if __name__ == "__main__":
    sys.exit(main())
