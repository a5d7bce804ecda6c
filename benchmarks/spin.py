"""Are the harness's times true? A kernel that spins for a known number of clock cycles is judged like any other.

    python -m benchmarks.spin --repeats 3 --json spin.json

The candidate launches one block whose first thread spins until ``clock64`` has gone so far, and writes down for each
call how far that was, and how many nanoseconds ``globaltimer`` saw pass. The clock's rate is the one over the other, of
all calls of a mode together: some GPUs' ``globaltimer`` steps by a microsecond only (a Hopper's by 32 ns). The truth is
cycles over rate. Beside it stands what the harness says in each of its modes, less what it says of an empty launch
(`kernels`, the profiler's, needs nothing taken off). Modes other than `synchronised` exist below a millisecond alone;
what takes longer has the empty launch of the last one that has them taken off. In `synchronised` the way from the call
to its launch counts as well, which is longer here than that of the empty launch.

A time holds within 2 % from 200 us on, within 2 % and 1 us below; to that comes what the step of ``globaltimer`` leaves
open. Of several repeats the table has the worst one. Exit code 1 where something does not hold, 2 where the call is
wrong or there is no GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import (
    LIMITS,
    Budget,
    count,
    cycles_per_ms,
    parser,
    positive,
    program,
    save,
    say,
    session_on_gpu,
    table,
    written,
)
from harness.errors import HarnessError
from harness.executors.session import Session
from harness.judge.case_context import forward_command
from harness.judge.compare.trial_result import TrialResult
from harness.judge.evaluation.candidate_judge import CandidateJudge
from harness.judge.policy import Policy, new_secret
from harness.judge.process.faults import stop_for
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.judge.timing.paired_timing import WARM_UP_ROUNDS
from harness.judge.timing.speed import QUICK_ROUNDS
from harness.judge.timing.timing_target import TimingTarget
from harness.project.problems import read_problem
from harness.project.solutions import Candidate
from harness.records.record import EvaluationRecord, Status
from harness.wire.replies import Outputs
from harness.wire.values import encode_plain
from harness.worker.candidate import WARM_UP_CALLS

DURATIONS_US = (10, 20, 50, 100, 200, 1000, 5000, 20000)
#: From here on a time must be right but for a share of it; below, also but for so much.
LONG_US, SHARE, SHORT_MS = 200, 0.02, 0.001
MARK = "spun "
#: Calls of the first and of the last of a case that are told: a log has little room.
FIRST, LAST = 80, 40

PROBLEM = '''"""A vector and one; on a GPU after some waiting."""

import torch
import torch.nn as nn

cycles = 0
CASES = {cases!r}


class Model(nn.Module):
    def __init__(self, cycles):
        super().__init__()
        self.cycles = cycles

    def forward(self, x, tells):
        if x.is_cuda:
            torch.cuda._sleep(self.cycles)
        return x + 1


def get_inputs():
    return [torch.rand(32), False]


def get_init_inputs():
    return [cycles]
'''
SOLUTION = '''import json

import torch
import torch.nn as nn

{spinner}

class ModelNew(nn.Module):
    """Spins; where it is asked to tell, it prints what its calls saw since the last time, and does not spin."""

    def __init__(self, cycles):
        super().__init__()
        self.spinner = Spinner(cycles)

    def forward(self, x, tells):
        if tells:
            calls = self.spinner.told()
            told = {{"count": len(calls), "first": calls[:{first}], "last": calls[-{last}:]}}
            print({mark!r} + json.dumps(told, separators=(",", ":")), flush=True)
            return x + 1
        return self.spinner(x)
'''
CUDA_SPINNER = '''import ctypes

from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cuda_runtime.h>

constexpr int kLanes = 32;

__device__ inline long long nanoseconds() {
    long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// y = x + 1 by the second warp, while the first thread spins. The history is the number of calls, then for each call
// nanoseconds and cycles; what is beyond its room is only counted.
__global__ void spin(const float* x, float* y, long long cycles, volatile long long* history, long long room) {
    if (threadIdx.x >= kLanes) {
        y[threadIdx.x - kLanes] = x[threadIdx.x - kLanes] + 1.f;
    } else if (threadIdx.x == 0) {
        const long long began = nanoseconds();
        const long long start = clock64();
        const long long number = history[0];  // read while the clock runs: that is no time beside it
        long long now = clock64();
        while (now - start < cycles) now = clock64();
        const long long ended = nanoseconds();
        if (number < room) {
            history[1 + 2 * number] = ended - began;
            history[2 + 2 * number] = now - start;
        }
        history[0] = number + 1;
    }
}

extern "C" int launch_spin(const float* x, float* y, long long cycles, long long* history, long long room,
                           void* stream) {
    spin<<<1, 2 * kLanes, 0, static_cast<cudaStream_t>(stream)>>>(x, y, cycles, history, room);
    return cudaGetLastError();
}
"""
ROOM = 1 << 15
library = ctypes.CDLL(
    load_inline(name="spin", cpp_sources="", cuda_sources=CUDA, no_implicit_headers=True, is_python_module=False)
)
launch = library.launch_spin
pointer, number = ctypes.c_void_p, ctypes.c_longlong
launch.argtypes = [pointer, pointer, number, pointer, number, pointer]
current_stream = torch._C._cuda_getCurrentRawStream


class Spinner:
    """The kernel, and its history on the device."""

    def __init__(self, cycles):
        self.cycles = cycles
        self.history = torch.zeros(1 + 2 * ROOM, dtype=torch.int64, device="cuda")
        self.place = self.history.data_ptr()
        self.device = self.history.device.index

    def __call__(self, x):
        y = torch.empty_like(x)
        if launch(x.data_ptr(), y.data_ptr(), self.cycles, self.place, ROOM, current_stream(self.device)):
            raise RuntimeError("the launch failed")
        return y

    def told(self):
        """[nanoseconds, cycles] of each call since the last time."""
        calls = min(int(self.history[0]), ROOM)
        found = self.history[1 : 1 + 2 * calls].view(-1, 2).tolist()
        self.history.zero_()
        return found

'''


class Call(NamedTuple):
    """What the kernel saw of one call."""

    ns: int
    cycles: int


@dataclass(frozen=True)
class History:
    """What the kernel saw of a case's calls, the trial's left out.

    Attributes:
        count: How many there were.
        first: The first of them.
        last: The last.
    """

    count: int
    first: tuple[Call, ...]
    last: tuple[Call, ...]

    @classmethod
    def read(cls, log: str) -> History:
        """The last one that a candidate printed.

        Raises:
            HarnessError: It printed none.
        """
        lines = [line.removeprefix(MARK) for line in log.splitlines() if line.startswith(MARK)]
        if not lines:
            raise HarnessError("the candidate told nothing of its calls; its log: " + log[-500:])
        told = json.loads(lines[-1])
        parts = [tuple(Call(*pair) for pair in told[name]) for name in ("first", "last")]
        return cls(told["count"], *parts)

    @property
    def step_ns(self) -> int:
        """By what ``globaltimer`` steps: the least by which two calls differ; 0 where none do."""
        seen = sorted({call.ns for call in (*self.first, *self.last)})
        return min((later - earlier for earlier, later in itertools.pairwise(seen)), default=0)

    def of_mode(self, mode: str, pairs: int, modes: Mapping[str, Any]) -> Sequence[Call]:
        """The calls whose times a mode's median is of, in the harness's order of calls.

        The harness runs the candidate once, then a series with its warm-up, windows, one call each for memory and for
        the profiler, and, where a call is short, queued calls and replayed ones, each series with its warm-up.

        Args:
            mode: ``synchronised``, ``kernels``, ``queued`` or ``graph``.
            pairs: Samples of the series.
            modes: The record's modes; empty where the call is not short.
        """
        if mode == "synchronised":
            return self.first[1 + WARM_UP_ROUNDS :][:pairs]
        if "failure" in modes.get("graph", {}) or "failure" in modes.get("queued", {}):
            return (*self.first, *self.last)  # nobody knows which of them were whose
        replayed, queued = QUICK_ROUNDS, WARM_UP_ROUNDS + WARM_UP_CALLS + QUICK_ROUNDS
        if mode == "graph":
            return self.last[-replayed:]
        if mode == "queued":
            return self.last[-queued - QUICK_ROUNDS : -queued]
        traced = len(self.last) - queued - QUICK_ROUNDS - WARM_UP_ROUNDS - 1
        return self.last[traced : traced + 1]


class Truth(NamedTuple):
    """How long calls of a mode took.

    Attributes:
        ms: The median of their cycles, over the rate of the clock.
        ghz: The rate of the clock during all of them.
        unsure_ms: What the step of ``globaltimer`` leaves open.
    """

    ms: float
    ghz: float
    unsure_ms: float


def truth(calls: Sequence[Call], step_ns: int) -> Truth:
    """How long these calls, at least one, took by the device's own clocks."""
    rate = sum(call.cycles for call in calls) / sum(call.ns for call in calls)
    cycles = statistics.median(call.cycles for call in calls)
    return Truth(cycles / rate / 1e6, rate, step_ns / math.sqrt(len(calls)) / 1e6)


@dataclass(frozen=True)
class Row:
    """A duration in a mode.

    Attributes:
        duration_us: What was asked for.
        mode: ``synchronised``, ``queued``, ``graph`` or ``kernels``.
        truth: What it was.
        harness_ms: What the harness says, an empty launch's time taken off.
        overhead_ms: What was taken off.
    """

    duration_us: float
    mode: str
    truth: Truth
    harness_ms: float
    overhead_ms: float

    @property
    def difference_ms(self) -> float:
        """By how much the harness says more."""
        return self.harness_ms - self.truth.ms

    @property
    def bound_ms(self) -> float:
        """How large the difference may be."""
        extra = SHORT_MS if self.duration_us < LONG_US else 0.0
        return SHARE * self.truth.ms + extra + self.truth.unsure_ms

    @property
    def holds(self) -> bool:
        """Whether it is no larger."""
        return abs(self.difference_ms) <= self.bound_ms


def rows_of(
    record: EvaluationRecord, history: History, duration_us: float, overhead_ms: float
) -> tuple[list[Row], float]:
    """What a record says of a duration, by mode.

    Args:
        record: One that passed and was timed.
        history: What the kernel saw.
        duration_us: The duration.
        overhead_ms: What an empty launch took, synchronised, where the record does not say.

    Returns:
        The rows, and what an empty launch took, synchronised.
    """
    sides = record.samples["forward"]
    samples = sides.get("candidate", sides.get("uncertified"))["samples_ms"]
    modes = record.modes.get("forward", {})
    overhead_ms = modes.get("synchronised", {}).get("overhead_ms", overhead_ms)
    claims = {"synchronised": (statistics.median(samples), overhead_ms)}
    for mode, told in modes.items():
        if told.get("candidate_ms") is not None:
            claims[mode] = (told["candidate_ms"], told.get("overhead_ms", 0.0))
    rows = []
    for mode, (claim, overhead) in claims.items():
        calls = history.of_mode(mode, len(samples), modes)
        if calls:
            rows.append(Row(duration_us, mode, truth(calls, history.step_ns), claim - overhead, overhead))
    return rows, overhead_ms


def worst(rows: Iterable[Row]) -> list[Row]:
    """Of each duration and mode the row that is furthest from the truth for what it may be."""
    groups: dict[tuple[float, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.duration_us, row.mode), []).append(row)
    return [max(group, key=lambda row: abs(row.difference_ms) / row.bound_ms) for _, group in sorted(groups.items())]


def rows_table(rows: Iterable[Row]) -> str:
    """The rows as a table, in microseconds."""
    header = ["duration us", "mode", "SM clock GHz", "truth us", "harness us", "empty launch us"]
    header += ["difference us", "difference", "may be us", "holds"]
    cells = [
        [
            f"{row.duration_us:g}",
            row.mode,
            f"{row.truth.ghz:.3f}",
            f"{row.truth.ms * 1e3:.2f}",
            f"{row.harness_ms * 1e3:.2f}",
            f"{row.overhead_ms * 1e3:.2f}",
            f"{row.difference_ms * 1e3:+.2f}",
            f"{row.difference_ms / row.truth.ms:+.2%}",
            f"{row.bound_ms * 1e3:.2f}",
            row.holds,
        ]
        for row in rows
    ]
    return table(header, cells)


class AskingJudge(CandidateJudge):
    """The harness's judge; it has the candidate tell what its calls saw while it was timed.

    Attributes:
        log: What the candidate has printed by then.
    """

    log = ""

    def _time(
        self, target: TimingTarget, results: list[TrialResult], worker: WorkerHandle, clock: Clock
    ) -> dict[str, Any]:
        self._have_told(target, worker, clock)  # the trial's call is none of those
        fields = super()._time(target, results, worker, clock)
        self._have_told(target, worker, clock)
        self.log = worker.said()
        return fields

    def _have_told(self, target: TimingTarget, worker: WorkerHandle, clock: Clock) -> None:
        """Ask for it by the one input that is no tensor.

        Raises:
            CandidateStopped: The candidate failed.
        """
        first = replace(target.first, inputs=target.fresh_inputs(target.seed("told")))
        command = forward_command(target.context, first, 0, "forward", differentiate=False)
        tells = replace(command.inputs[1], plain=encode_plain(True))
        reply = worker.request(replace(command, inputs=(command.inputs[0], tells)), clock, "telling")
        if not isinstance(reply, Outputs):
            raise stop_for(reply)


def pair(folder: Path, durations_us: Sequence[float], per_us: float, spinner: str) -> Candidate:
    """The problem, with a case for each duration, and the candidate.

    Args:
        folder: Where their files are put.
        durations_us: Durations in microseconds.
        per_us: Cycles in a microsecond.
        spinner: The source of the class ``Spinner``.
    """
    cases = {case_of(one): {"cycles": round(one * per_us)} for one in durations_us}
    path = folder / "waiting.py"
    path.write_text(PROBLEM.format(cases=cases), encoding="utf-8")
    text = SOLUTION.format(spinner=spinner, mark=MARK, first=FIRST, last=LAST)
    return written(read_problem(path), folder / "spin.py", text)


def case_of(duration_us: float) -> str:
    """The name of a duration's case."""
    return f"us_{duration_us:g}".replace(".", "_")


def run(session: Session, candidate: Candidate, options: argparse.Namespace, rows: list[Row]) -> list[EvaluationRecord]:
    """Judge every duration as often as the options ask for; rows go to ``rows`` as they come.

    Returns:
        The records of evaluations that came to none.
    """
    budget, failed = Budget(options.budget_s), []
    overhead_ms = 0.0
    for repeat in range(options.repeats):
        policy = Policy(session.device, new_secret(), LIMITS, forward_only=True)
        judge = AskingJudge(candidate, policy, session.surroundings, session.workers, baseline=session.baseline)
        with contextlib.closing(judge):
            for duration_us in sorted(options.durations_us):
                if budget.is_spent:
                    say(f"{duration_us:g} us, repeat {repeat + 1}: left out, the budget is spent")
                    continue
                case = case_of(duration_us)
                record = judge.evaluate(case, candidate.problem.case(case), trials=1)
                if record.status is not Status.PASSED or "forward" not in record.samples:
                    failed.append(record)
                    say(f"{duration_us:g} us: {record.status}: {record.message}")
                    continue
                if record.message:
                    say(f"{duration_us:g} us: {record.message}")
                found, overhead_ms = rows_of(record, History.read(judge.log), duration_us, overhead_ms)
                rows += found
                for row in found:
                    say(
                        f"{duration_us:g} us, {row.mode}: true {row.truth.ms * 1e3:.2f} us, "
                        f"said {row.harness_ms * 1e3:.2f} us, {row.difference_ms * 1e3:+.2f} us, "
                        f"{'holds' if row.holds else 'does not hold'}"
                    )
                for mode, told in record.modes.get("forward", {}).items():
                    if "failure" in told:
                        say(f"{duration_us:g} us, {mode}: {told['failure']}")
                save(options.json, as_json(session, rows, failed))
    return failed


def as_json(session: Session, rows: Sequence[Row], failed: Sequence[EvaluationRecord]) -> dict[str, Any]:
    """Everything, for a file."""
    told = [
        {
            **asdict(row),
            "truth": row.truth._asdict(),
            "difference_ms": row.difference_ms,
            "bound_ms": row.bound_ms,
            "holds": row.holds,
        }
        for row in rows
    ]
    environment = session.surroundings.environment
    return {"environment": environment, "rows": told, "failed": [asdict(record) for record in failed]}


def arguments() -> argparse.ArgumentParser:
    """The script's options."""
    made = parser(__doc__)
    made.add_argument("--repeats", type=count, default=3, help="evaluations of each duration (default: 3)")
    made.add_argument("--durations-us", type=positive, nargs="+", default=list(DURATIONS_US), metavar="US")
    return made


def main() -> int:
    """Run from the command line; the exit code."""
    options = arguments().parse_args()

    def work() -> int:
        rows: list[Row] = []
        try:
            with session_on_gpu(options) as session, tempfile.TemporaryDirectory() as folder:
                save(options.json, as_json(session, (), ()))
                per_ms = cycles_per_ms()
                say(f"{per_ms:.0f} cycles in a millisecond")
                candidate = pair(Path(folder), options.durations_us, per_ms / 1e3, CUDA_SPINNER)
                failed = run(session, candidate, options, rows)
        finally:  # what there is by then is worth its GPU time
            if rows:
                print(rows_table(worst(rows)), flush=True)
        return 0 if rows and not failed and all(row.holds for row in rows) else 1

    return program(work)


if __name__ == "__main__":
    sys.exit(main())
