"""Group norm at full size beside everything that one might use instead, in one run on a GPU.

    python3 -m benchmarks.group_norm_rivals --json rivals.json

Sides: eager PyTorch; torch.compile in its default mode and in max-autotune (without CUDA graphs); Triton written in
the usual way (``benchmarks.triton_group_norm``); eager on channels-last tensors; and our solutions. In each round every
side is called once, in random order, between CUDA events; speedups over eager are medians of the rounds' ratios with
their 95 % interval (``harness.timing.statistics``). No side's tensors fit L2. Results are compared with eager's. Exit
code 1 where one deviates, or a solution is slower than another side beyond its interval.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

from benchmarks.common import count, gpu, parser, program, save, say, table
from benchmarks.group_norm_shapes import DTYPES, EAGER, PROBLEM, Call, calls_of, error_of, module_of
from harness.errors import UsageError
from harness.project.paths import project_root
from harness.timing.statistics import median_interval, paired_ratios

SHAPE, GROUPS = (112, 64, 512, 512), 8
ROUNDS = 25
#: The device sleeps while a call is queued, so that none waits for Python.
SLEEP_CYCLES = 4_000_000
#: Calls of each side beforehand: compilers and tuners are done after them.
WARM_UP = 3
#: Relative L2 distance of two float32 results; half precision adds a rounding of each.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Row:
    """One side in one direction.

    Attributes:
        side, direction: What was timed.
        milliseconds: Median of a call.
        ratio, low, high: Eager's time over this side's, with its 95 % interval.
        distance: The largest relative L2 distance of its results from eager's.
    """

    side: str
    direction: str
    milliseconds: float
    ratio: float
    low: float
    high: float
    distance: float


def models_of(solutions: list[str], options: argparse.Namespace, device: torch.device) -> dict[str, torch.nn.Module]:
    """The sides' models, with the same parameters.

    Raises:
        UsageError: There is no Triton, or a solution is none.
    """
    try:
        from benchmarks import triton_group_norm
    except ImportError as error:
        raise UsageError(f"{error.name} is missing: pip install triton") from None
    dtype = DTYPES[options.dtype]
    eager = torch.nn.GroupNorm(GROUPS, SHAPE[1], device=device, dtype=dtype)
    torch.nn.init.normal_(eager.weight)
    torch.nn.init.normal_(eager.bias)
    written = triton_group_norm.GroupNorm(GROUPS, SHAPE[1], device=device, dtype=dtype)
    written.load_state_dict(eager.state_dict())
    models: dict[str, torch.nn.Module] = {
        EAGER: eager,
        "compile": torch.compile(eager),  # type: ignore[dict-item]
        "compile max-autotune": torch.compile(eager, mode="max-autotune-no-cudagraphs"),  # type: ignore[dict-item]
        "triton": written,
        "channels-last": eager,
    }
    folder = project_root(options.root) / "solutions" / PROBLEM
    for name in solutions:
        model = module_of(folder / f"{name}.py").ModelNew(SHAPE[1], GROUPS).to(device=device, dtype=dtype)
        model.gn.load_state_dict(eager.state_dict())
        models[name] = model
    return models


def main() -> int:
    """Run from the command line; the exit code."""
    made = parser(__doc__)
    made.add_argument("solutions", nargs="*", default=["streamed"], help="variants of group_norm (default: streamed)")
    made.add_argument("--dtype", default="float32", choices=list(DTYPES))
    made.add_argument("--batch", type=count, default=SHAPE[0], help=f"samples (default: {SHAPE[0]})")
    options = made.parse_args()
    return program(lambda: compare(options))


def compare(options: argparse.Namespace) -> int:
    """Time all sides and print what came of it; the exit code."""
    device = gpu(options.device)
    torch.cuda.set_device(device)
    shape = (options.batch, *SHAPE[1:])
    models = models_of(options.solutions, options, device)
    torch.manual_seed(0)
    x = torch.rand(shape, device=device, dtype=DTYPES[options.dtype])
    cotangent = torch.randn(shape, device=device, dtype=x.dtype)
    last = torch.channels_last
    rows: list[Row] = []
    for direction in ("forward", "forward_backward"):
        calls: dict[str, Call] = {}
        for name, model in models.items():
            given = [one.to(memory_format=last) if name == "channels-last" else one for one in (x, cotangent)]
            calls[name] = calls_of(model, given[0].detach().requires_grad_(), given[1])[direction]
        rows += rows_of(direction, calls)
        del calls
        save(options.json, {"shape": shape, "dtype": options.dtype, "rows": [asdict(row) for row in rows]})
    cells = [
        [row.side, row.direction, f"{row.milliseconds:.3f} ms", f"{row.ratio:.3f}x [{row.low:.3f}, {row.high:.3f}]"]
        for row in rows
    ]
    print(table(["side", "direction", "a call", "over eager"], cells), flush=True)
    return 1 if is_bad(rows, options) else 0


def rows_of(direction: str, calls: dict[str, Call]) -> list[Row]:
    """Time the sides of a direction."""
    expected = [one.detach() for one in calls[EAGER]()]
    distances = {name: error_of(call(), expected) for name, call in calls.items()}
    del expected
    for _ in range(WARM_UP):
        for call in calls.values():
            call()
    order, choose = list(calls), random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        choose.shuffle(order)
        for name in order:
            times[name].append(milliseconds(calls[name]))
    rows = []
    for name, own in times.items():
        interval = median_interval(paired_ratios(own, times[EAGER]))
        figures = statistics.median(own), interval.ratio, interval.low, interval.high, distances[name]
        rows.append(Row(name, direction, *figures))
    return rows


def milliseconds(call: Callable[[], object]) -> float:
    """A call's time on the device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(SLEEP_CYCLES)  # type: ignore[no-untyped-call]
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def is_bad(rows: list[Row], options: argparse.Namespace) -> bool:
    """Whether a side's results deviate from eager's, or a solution is slower than another side; told on stderr."""
    found = False
    allowed = TOLERANCE + (0 if options.dtype == "float32" else torch.finfo(DTYPES[options.dtype]).eps)
    for row in rows:
        if not row.distance <= allowed:
            say(f"{row.side}, {row.direction}: results {row.distance:.1e} from eager's (allowed: {allowed:.1e})")
            found = True
        best = max((one.low for one in rows if one.direction == row.direction), default=0.0)
        if row.side in options.solutions and row.high < best:
            say(f"{row.side}, {row.direction}: slower than another side")
            found = True
    return found


if __name__ == "__main__":
    sys.exit(main())
