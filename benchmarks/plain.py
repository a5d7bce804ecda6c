"""Time a solution without the harness's timer: in a process of its own, by what others measure with.

    python -m benchmarks.plain solutions/group_norm/fused.py --problem group_norm --case full

Prints a JSON object: by direction (`forward`, under `no_grad`; `forward_backward`) milliseconds by `do_bench` (that of
Triton, which flushes the L2 cache before each call), by `unflushed` (events around calls in a row, nothing flushed) and
by `kernels` (the times of a call's kernels by torch's profiler, copies and fills left out, summed): medians. Exit code
2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.common import count, gpu, positive, program
from benchmarks.sweep import import_file
from harness.project import problems
from harness.project.paths import project_root
from harness.project.problems import ProblemModule
from harness.project.solutions import find_problem

#: What ``do_bench`` writes between calls; here it stands before a profiled call.
FLUSHED_BYTES = 256_000_000
WARM_UP_CALLS = 3


def calls_of(
    module: ProblemModule, make: Callable[..., torch.nn.Module], device: torch.device
) -> dict[str, Callable[[], object]]:
    """A candidate's calls by direction, on a draw of the problem's inputs.

    Args:
        module: The problem under its case.
        make: The candidate's class.
        device: Where it runs.
    """
    torch.manual_seed(0)
    with device:
        inputs = [value.to(device) if isinstance(value, torch.Tensor) else value for value in module.get_inputs()]
    model = make(*module.get_init_inputs()).to(device)
    for value in inputs:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            value.requires_grad_()
    leaves = [value for value in (*inputs, *model.parameters()) if getattr(value, "requires_grad", False)]
    with torch.no_grad():
        result = model(*inputs)
        cotangents = [torch.randn_like(output) for output in ([result] if torch.is_tensor(result) else result)]
    del result

    @torch.no_grad()
    def forward() -> object:
        return model(*inputs)

    def both() -> object:
        result = model(*inputs)
        outputs = [result] if torch.is_tensor(result) else list(result)
        return torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True)

    return {"forward": forward, "forward_backward": both}


def unflushed_ms(call: Callable[[], object], calls: int) -> float:
    """The median by events around each of some calls in a row."""
    for _ in range(WARM_UP_CALLS):
        call()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(calls)]
    for start, end in events:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events)


def kernels_ms(call: Callable[[], object], calls: int) -> float | None:
    """The median of what a call's kernels take together; None where the profiler sees none."""
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    sums = []
    for _ in range(calls):
        flushed.zero_()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
            call()
            torch.cuda.synchronize()
        events = [event for event in profiler.events() or [] if event.device_type.name == "CUDA"]
        times = [event.time_range.elapsed_us() for event in events if not event.name.startswith(("Memcpy", "Memset"))]
        sums.append(sum(times) / 1e3)
    return statistics.median(sums) or None


def main() -> int:
    """Run from the command line; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solution", type=Path)
    parser.add_argument("--problem", required=True, help="its name or file")
    parser.add_argument("--case", default="full")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--root")
    parser.add_argument("--rep-ms", type=positive, default=200.0, help="what do_bench is to take (default: 200)")
    parser.add_argument("--calls", type=count, default=15, help="unflushed calls (default: 15)")
    parser.add_argument("--profiled-calls", type=count, default=3, help="(default: 3)")
    options = parser.parse_args()

    def work() -> int:
        device = gpu(options.device)
        from triton.testing import do_bench  # comes with torch where there is CUDA

        problem = find_problem(project_root(options.root), options.problem)
        module = problems.load(problem, problem.case(options.case))
        calls = calls_of(module, import_file(options.solution).ModelNew, device)
        found = {
            direction: {
                "do_bench": do_bench(call, rep=options.rep_ms, return_mode="median"),
                "unflushed": unflushed_ms(call, options.calls),
                "kernels": kernels_ms(call, options.profiled_calls),
            }
            for direction, call in calls.items()
        }
        print(json.dumps(found), flush=True)
        return 0

    return program(work)


if __name__ == "__main__":
    sys.exit(main())
