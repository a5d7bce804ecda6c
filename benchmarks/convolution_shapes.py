"""The transposed convolution with GELU and group norm over shapes, against eager PyTorch's, on a GPU.

    python3 -m benchmarks.convolution_shapes --json shapes.json

Times are those of ``benchmarks.group_norm_shapes``. Every result is compared with float64 before it is timed, in
slices of the batch, and so is eager's. cuDNN decides whether eager's convolution runs in TF32, which its flags allow.
Exit code 1 where a result errs by more than twice eager's error and by more than 2^-10, or where a time is beyond
eager's and its interval.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from benchmarks.common import Budget, gpu, parser, program, save, say, table
from benchmarks.group_norm_shapes import EAGER, calls_of, error_of, figures_of, module_of, times_of
from harness.project.paths import project_root

SOLUTION = "solutions/conv_transpose2d_gelu_group_norm/tensor.py"
OURS = "tensor"
#: (batch, in, out, height, width), kernel, stride and groups of the norm.
SHAPES: tuple[tuple[tuple[int, int, int, int, int], int, int, int], ...] = (
    ((128, 64, 64, 256, 256), 3, 1, 8),
    ((64, 64, 64, 256, 256), 3, 1, 8),
    ((16, 64, 64, 256, 256), 3, 1, 8),
    ((4, 64, 64, 256, 256), 3, 1, 8),
    ((1, 64, 64, 256, 256), 3, 1, 8),
    ((128, 64, 64, 128, 128), 3, 1, 8),
    ((128, 64, 64, 64, 64), 3, 1, 8),
    ((128, 64, 64, 32, 32), 3, 1, 8),
    ((64, 64, 64, 128, 128), 1, 1, 8),
    ((64, 64, 64, 128, 128), 2, 1, 8),
    ((64, 32, 64, 128, 128), 3, 1, 8),
    ((64, 64, 32, 128, 128), 3, 1, 8),
    ((64, 32, 32, 128, 128), 3, 1, 4),
    ((64, 16, 16, 128, 128), 3, 1, 4),
    ((64, 48, 60, 100, 120), 3, 1, 5),
    ((32, 64, 64, 99, 101), 3, 1, 8),
    ((8, 64, 64, 200, 276), 3, 1, 8),
    ((8, 64, 64, 200, 280), 3, 1, 8),
    ((8, 64, 64, 512, 512), 3, 1, 8),
    ((64, 3, 64, 128, 128), 3, 1, 8),
    ((64, 64, 3, 128, 128), 3, 1, 1),
    ((32, 128, 64, 64, 64), 3, 1, 8),
    ((32, 64, 128, 64, 64), 3, 1, 8),
    ((32, 64, 64, 64, 64), 5, 1, 8),
    ((32, 64, 64, 64, 64), 2, 2, 8),
    ((32, 64, 64, 64, 64), 3, 2, 8),
    ((32, 64, 64, 64, 64), 4, 2, 8),
    ((16, 128, 64, 32, 32), 4, 2, 8),
    ((64, 64, 64, 128, 128), 2, 2, 8),
    ((64, 64, 64, 128, 128), 3, 2, 8),
    ((64, 64, 64, 128, 128), 4, 2, 8),
    ((128, 64, 64, 64, 64), 3, 2, 8),
    ((128, 64, 64, 64, 64), 4, 2, 8),
    ((32, 64, 64, 256, 256), 3, 2, 8),
    ((64, 64, 32, 99, 101), 3, 2, 8),
    ((64, 64, 3, 128, 128), 4, 2, 1),
    ((4, 64, 64, 16, 16), 3, 1, 8),
    ((1, 64, 64, 64, 64), 3, 1, 8),
)
#: Elements of a slice that float64 computes at once.
SLICE = 1 << 26


@dataclass(frozen=True)
class Row:
    """One shape in one direction.

    Attributes:
        shape, kernel, stride, groups, direction: What was timed.
        eager_ms, candidate_ms: Medians of a call.
        ratio, low, high: Eager's over the candidate's, with its 95 % interval.
        error, eager_error: The largest relative L2 errors of the results, against float64.
    """

    shape: tuple[int, ...]
    kernel: int
    stride: int
    groups: int
    direction: str
    eager_ms: float
    candidate_ms: float
    ratio: float
    low: float
    high: float
    error: float
    eager_error: float

    @property
    def fault(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if not self.error <= max(2 * self.eager_error, 2**-10):
            return f"wrong: relative L2 error {self.error:.1e}, eager's {self.eager_error:.1e}"
        return f"slower than eager: {self.ratio:.3g}x [{self.low:.3g}, {self.high:.3g}]" if self.high < 1 else ""


def exact_results(layers: torch.nn.Module, x: torch.Tensor, cotangent: torch.Tensor) -> list[torch.Tensor]:
    """Y and the gradients of x and of all parameters, in float64, slice by slice."""
    batch = max(1, SLICE // max(x[0].numel(), cotangent[0].numel()))
    pieces = []
    with torch.backends.cudnn.flags(enabled=False):  # cuDNN is slow in float64
        for one, dy in zip(x.split(batch), cotangent.split(batch), strict=True):
            call = calls_of(layers, one.detach().double().requires_grad_(), dy.double())["forward_backward"]
            pieces.append([tensor.detach() for tensor in call()])
    y, dx, *parameters = zip(*pieces, strict=True)
    return [torch.cat(y), torch.cat(dx), *(torch.stack(gradients).sum(0) for gradients in parameters)]


def rows_of(shape: tuple[int, int, int, int, int], kernel: int, stride: int, groups: int, ours: type) -> list[Row]:
    """Both directions of one shape."""
    batch, channels, out, height, width = shape
    torch.manual_seed(sum(shape))
    here = {"device": "cuda", "dtype": torch.float32}
    eager = torch.nn.Sequential(
        torch.nn.ConvTranspose2d(channels, out, kernel, stride), torch.nn.GELU(), torch.nn.GroupNorm(groups, out)
    ).to(**here)
    candidate = ours(channels, out, kernel, stride, 1, groups).to(**here)
    candidate.load_state_dict(dict(zip(candidate.state_dict(), eager.state_dict().values(), strict=True)))
    x = torch.rand(batch, channels, height, width, **here).requires_grad_()
    cotangent = torch.randn(batch, out, *((size - 1) * stride + kernel for size in (height, width)), **here)
    calls = {OURS: calls_of(candidate, x, cotangent), EAGER: calls_of(eager, x, cotangent)}
    expected = exact_results(copy.deepcopy(eager).double(), x, cotangent)
    errors = {name: error_of(one["forward_backward"](), expected) for name, one in calls.items()}
    del expected
    rows = []
    for direction in ("forward", "forward_backward"):
        times = times_of({name: one[direction] for name, one in calls.items()}, random.Random(0))
        figures = figures_of(times[OURS], times[EAGER])
        rows.append(Row(shape, kernel, stride, groups, direction, *figures, errors[OURS], errors[EAGER]))
    return rows


def report(rows: Sequence[Row]) -> str:
    """A line for each shape, and what is wrong or slower than eager."""
    lines = []
    for forward, both in zip(rows[::2], rows[1::2], strict=True):
        line: list[object] = ["x".join(map(str, forward.shape)), forward.kernel, forward.stride]
        for one in (forward, both):
            line += [f"{one.candidate_ms:.4g}", f"{one.ratio:.3g}x [{one.low:.3g}, {one.high:.3g}]"]
        lines.append([*line, f"{forward.error:.1e}", f"{forward.eager_error:.1e}"])
    names = ["batch x in x out x height x width", "kernel", "stride", "forward ms", "over eager"]
    parts = [table([*names, "with backward ms", "over eager", "error", "eager's error"], lines)]
    parts += [f"{one.direction}, {one.shape}, kernel {one.kernel}: {one.fault}" for one in rows if one.fault]
    return "\n".join(parts)


def main() -> int:
    """Run from the command line; the exit code."""
    options = parser(__doc__).parse_args()

    def work() -> int:
        device = gpu(options.device)
        torch.cuda.set_device(device)
        ours = module_of(project_root(options.root) / SOLUTION).ModelNew
        budget, rows = Budget(options.budget_s), []
        for shape in SHAPES:
            if budget.is_spent:
                say(f"the budget is spent: {shape} and what follows is left out")
                break
            rows += rows_of(*shape, ours)
            torch.cuda.empty_cache()
            save(options.json, {"rows": [asdict(row) for row in rows]})
        print(report(rows), flush=True)
        return 1 if any(row.fault for row in rows) else 0

    return program(work)


if __name__ == "__main__":
    sys.exit(main())
