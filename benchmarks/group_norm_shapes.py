"""Group norm over shapes from a few hundred to half a billion elements: our kernels against eager PyTorch's, on a GPU.

    python3 -m benchmarks.group_norm_shapes --dtype float32 --dtype float16 --json shapes.json

Times are those of replayed CUDA graphs, per call: short calls are repeated in one graph, so that neither Python nor a
launch is in them. In each round all sides are replayed in random order; the ratio is the median of the rounds' ratios,
with its 95 % interval, as in ``harness.timing.statistics``. Nothing is flushed: small inputs lie in L2, for all sides.
Every result is compared with float64 before it is timed. Exit code 1 where a solution is wrong, or slower than eager
beyond its interval.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import Budget, gpu, parser, program, save, say, table
from harness.errors import UsageError
from harness.project.paths import project_root
from harness.timing.statistics import median_interval, paired_ratios

EAGER = "eager"
PROBLEM = "group_norm"
#: Shapes (batch, channels, *spatial) and groups: of networks, and some that nothing divides.
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((1, 32, 8), 8),
    ((16, 32, 8), 8),
    ((128, 32), 8),
    ((1024, 256), 8),
    ((4096, 1024), 32),
    ((1, 64, 32, 32), 8),
    ((8, 64, 32, 32), 8),
    ((64, 64, 32, 32), 8),
    ((1, 128, 64, 64), 32),
    ((8, 128, 64, 64), 32),
    ((32, 128, 64, 64), 32),
    ((1, 256, 56, 56), 32),
    ((32, 256, 56, 56), 32),
    ((1, 512, 128, 128), 32),
    ((8, 512, 128, 128), 32),
    ((2, 320, 64, 64), 32),
    ((2, 640, 32, 32), 32),
    ((2, 1280, 16, 16), 32),
    ((2, 1280, 8, 8), 32),
    ((1, 128, 512, 512), 32),
    ((1, 512, 64, 64), 32),
    ((4, 96, 37, 41), 8),
    ((16, 48, 1000), 6),
    ((16, 80, 3000), 8),
    ((2, 64, 16, 64, 64), 8),
    ((8, 64, 256, 256), 8),
    ((16, 64, 512, 512), 8),
    ((64, 32, 128, 128), 1),
    ((32, 64, 28, 28), 64),
    ((256, 64, 14, 14), 8),
)
ROUNDS = 15
#: A graph holds as many calls as take about this long.
GRAPH_MS, MOST_CALLS = 1.0, 100
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

Call = Callable[[], Sequence[torch.Tensor]]


@dataclass(frozen=True)
class Row:
    """One solution on one shape, in one direction.

    Attributes:
        dtype, shape, groups, direction, solution: What was timed; parameters have the dtype of the input.
        eager_ms, candidate_ms: Medians of a call.
        ratio, low, high: Eager's over the candidate's, with its 95 % interval.
        error: The largest relative L2 error of the results, against float64.
    """

    dtype: str
    shape: tuple[int, ...]
    groups: int
    direction: str
    solution: str
    eager_ms: float
    candidate_ms: float
    ratio: float
    low: float
    high: float
    error: float

    @property
    def is_wrong(self) -> bool:
        """Whether the error is beyond what float32 statistics, and one rounding of each result, may leave."""
        return not self.error <= 1e-5 + torch.finfo(DTYPES[self.dtype]).eps / 2


def module_of(path: Path) -> Any:
    """A solution's module, its kernels built by torch."""
    spec = importlib.util.spec_from_file_location(f"solution_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"{path} is no solution: `python -m harness list` shows those there are")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def calls_of(model: torch.nn.Module, x: torch.Tensor, cotangent: torch.Tensor) -> dict[str, Call]:
    """A call in each direction; the second returns the output and all gradients."""
    leaves = [x, *model.parameters()]

    def forward() -> Sequence[torch.Tensor]:
        with torch.no_grad():
            return [model(x)]

    def both() -> Sequence[torch.Tensor]:
        y = model(x)
        return [y, *torch.autograd.grad(y, leaves, cotangent)]

    return {"forward": forward, "forward_backward": both}


def captured(call: Call) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph of a call, repeated where it is short; and how often."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
    end.synchronize()
    count = max(1, min(MOST_CALLS, math.ceil(GRAPH_MS / max(begin.elapsed_time(end), 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph, count


def times_of(calls: dict[str, Call], choose: random.Random) -> dict[str, list[float]]:
    """Milliseconds of a call by side, for each round."""
    graphs = {name: captured(call) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in graphs}
    order = list(graphs)
    for number in range(-2, ROUNDS):
        choose.shuffle(order)
        for name in order:
            graph, count = graphs[name]
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if number >= 0:
                found[name].append(begin.elapsed_time(end) / count)
    return found


def figures_of(candidate: Sequence[float], eager: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Medians of eager's and the candidate's times; the ratio of eager's over the candidate's, with its interval."""
    interval = median_interval(paired_ratios(candidate, eager)).widened()
    return statistics.median(eager), statistics.median(candidate), interval.ratio, interval.low, interval.high


def error_of(received: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """The largest relative L2 error."""
    errors = []
    for mine, exact in zip(received, expected, strict=True):
        norm = exact.detach().norm()
        errors.append(float((mine.detach().double() - exact.detach()).norm() / norm))
    return max(errors, default=0.0)


def rows_of(
    dtype: str, shape: tuple[int, ...], groups: int, modules: dict[str, Any], device: torch.device
) -> list[Row]:
    """All solutions on one shape, in both directions."""
    torch.manual_seed(math.prod(shape))
    here: dict[str, Any] = {"device": device, "dtype": DTYPES[dtype]}
    x = torch.rand(shape, **here).requires_grad_()
    cotangent = torch.randn(shape, **here)
    models: dict[str, torch.nn.Module] = {EAGER: torch.nn.GroupNorm(groups, shape[1], **here)}
    torch.nn.init.normal_(models[EAGER].weight)  # type: ignore[arg-type]
    torch.nn.init.normal_(models[EAGER].bias)  # type: ignore[arg-type]
    for name, module in modules.items():
        models[name] = module.ModelNew(shape[1], groups).to(**here)
        models[name].gn.load_state_dict(models[EAGER].state_dict())  # type: ignore[operator,union-attr]
    exact = torch.nn.GroupNorm(groups, shape[1], device=device).double()
    exact.load_state_dict(models[EAGER].state_dict())
    expected = calls_of(exact, x.detach().double().requires_grad_(), cotangent.double())["forward_backward"]()
    calls = {name: calls_of(model, x, cotangent) for name, model in models.items()}
    errors = {name: error_of(calls[name]["forward_backward"](), expected) for name in modules}
    del expected
    rows = []
    for direction in ("forward", "forward_backward"):
        times = times_of({name: own[direction] for name, own in calls.items()}, random.Random(0))
        for name in modules:
            figures = figures_of(times[name], times[EAGER])
            rows.append(Row(dtype, shape, groups, direction, name, *figures, errors[name]))
    return rows


def report(rows: Sequence[Row]) -> str:
    """A line for each shape and direction, and what is wrong or slower than eager."""
    names = list(dict.fromkeys(row.solution for row in rows))
    lines = []
    for key in dict.fromkeys((row.dtype, row.shape, row.groups, row.direction) for row in rows):
        dtype, shape, groups, direction = key
        mine = {row.solution: row for row in rows if (row.dtype, row.shape, row.groups, row.direction) == key}
        cells = [
            f"{one.candidate_ms * 1e3:.4g} us, {one.ratio:.3g}x [{one.low:.3g}, {one.high:.3g}]"
            for one in mine.values()
        ]
        eager = next(iter(mine.values())).eager_ms
        lines.append([dtype, "x".join(map(str, shape)), groups, direction, f"{eager * 1e3:.4g} us", *cells])
    parts = [table(["dtype", "shape", "groups", "direction", EAGER, *names], lines)]
    for row in rows:
        what = f"{row.solution}, {row.dtype}, {'x'.join(map(str, row.shape))}, {row.direction}"
        if row.is_wrong:
            parts.append(f"wrong: {what}: relative L2 error {row.error:.1e}")
        if row.high < 1:
            parts.append(f"slower than eager: {what}: {row.ratio:.3g}x [{row.low:.3g}, {row.high:.3g}]")
    return "\n".join(parts)


def main() -> int:
    """Run from the command line; the exit code."""
    made: argparse.ArgumentParser = parser(__doc__)
    made.add_argument("solutions", nargs="*", default=["streamed"], help="variants of group_norm (default: streamed)")
    made.add_argument("--dtype", dest="dtypes", action="append", choices=list(DTYPES), help="repeatable [float32]")
    options = made.parse_args()

    def work() -> int:
        device = gpu(options.device)
        torch.cuda.set_device(device)
        folder = project_root(options.root) / "solutions" / PROBLEM
        with ThreadPoolExecutor(len(options.solutions)) as pool:
            found = pool.map(lambda name: module_of(folder / f"{name}.py"), options.solutions)
            modules = dict(zip(options.solutions, found, strict=True))
        budget, rows = Budget(options.budget_s), []
        for dtype, (shape, groups) in itertools.product(options.dtypes or ["float32"], SHAPES):
            if budget.is_spent:
                say(f"the budget is spent: {dtype}, {'x'.join(map(str, shape))} and what follows is left out")
                break
            rows += rows_of(dtype, shape, groups, modules, device)
            save(options.json, {"rows": [asdict(row) for row in rows]})
        print(report(rows), flush=True)
        return 1 if any(row.high < 1 or row.is_wrong for row in rows) else 0

    return program(work)


if __name__ == "__main__":
    sys.exit(main())
