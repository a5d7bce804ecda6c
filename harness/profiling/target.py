"""Runs a solution on one case for Nsight Compute to watch, without judging or confining it.

The command is ``python -m harness.profiling.target SOLUTION PROBLEM CONSTANTS DEVICE FOLDER``. The
first two arguments are files. ``CONSTANTS`` are the case's, encoded by ``wire.values``. ``DEVICE``
is ``cpu`` or ``cuda:N``. ``FOLDER`` holds existing libraries and receives new ones.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils import cpp_extension

from harness.compilation.cuda import CudaLoader
from harness.errors import EXIT_NOT_PASSED, EXIT_PASSED, ProblemError
from harness.judge.inputs.draws import draw_inputs, init_args
from harness.project import problems
from harness.project.problems import Problem, function_source
from harness.system.files import read_source, source_text
from harness.system.text import printable
from harness.wire.structure import tensors_of
from harness.wire.values import decode_plain
from harness.wire.variations import is_differentiable
from harness.worker.failures import describe
from harness.worker.solution_module import import_solution, own_init_args

SEED = 0
WARM_UPS = 2


def run(solution: str, problem: Problem, constants: dict[str, Any], device: torch.device, folder: Path) -> None:
    """Calls a solution twice to warm up, then once under the profiler.

    Each call runs a forward, and a forward with its backward.

    Args:
        solution: Path of its file.
        problem: The problem that it solves.
        constants: Constants of the case.
        device: Device to run on.
        folder: Folder of its libraries.

    Raises:
        ProblemError: The problem does not run.
        Exception: The solution may raise any exception.
    """
    module = problems.load(problem, constants)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        built = {path.stem: path for path in folder.glob("*.so")}
        capability = torch.cuda.get_device_capability(device)
        loader = CudaLoader(Path(solution), built, folder, lambda event, name: None, capability=capability)
        cpp_extension.load_inline, cpp_extension.load = loader.load_inline, loader.load
    own = import_solution(solution)
    arguments = function_source(source_text(read_source(Path(solution))), "get_init_inputs")
    is_own = arguments is not None and arguments != function_source(problem.source, "get_init_inputs")
    args = own_init_args(own, constants) if is_own else init_args(problem, module, SEED)
    torch.manual_seed(SEED)
    model = own.ModelNew(*args).to(device)
    inputs = draw_inputs(problem, module, SEED, device)
    step = Step(model, inputs)
    for _ in range(WARM_UPS):
        step()
    with _watched(device):
        step()


class Step:
    """Runs one forward without gradients, and one with its backward.

    Args:
        model: Instance of the solution.
        inputs: Arguments of its ``forward``. The backward differentiates the floating-point ones.
    """

    def __init__(self, model: torch.nn.Module, inputs: Sequence[Any]):
        self._model = model
        self._inputs = inputs
        floating = [one for one in inputs if is_differentiable(one)]
        self._leaves = [*(one.requires_grad_() for one in floating), *model.parameters()]
        self._cotangents: list[torch.Tensor] = []

    def __call__(self) -> None:
        """Runs both passes.

        The first call draws the cotangents, so later calls do not contain this work.
        """
        with torch.no_grad():
            self._model(*self._inputs)
        result = self._model(*self._inputs)
        ends = [output for output in tensors_of(result) if output.requires_grad]
        leaves = [leaf for leaf in self._leaves if leaf.requires_grad]
        if ends and leaves:
            self._cotangents = self._cotangents or [torch.randn_like(end) for end in ends]
            torch.autograd.grad(ends, leaves, self._cotangents, allow_unused=True)


@contextlib.contextmanager
def _watched(device: torch.device) -> Iterator[None]:
    """Opens the window that ``ncu --profile-from-start off`` records; does nothing on the CPU."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.synchronize(device)
    with torch.cuda.profiler.profile():
        yield
        torch.cuda.synchronize(device)


def main(arguments: Sequence[str]) -> int:
    """Runs the program and prints an error to stderr in a few lines."""
    solution, path, constants, device, folder = arguments
    try:
        problem = problems.read_problem(Path(path))
        run(solution, problem, decode_plain(constants), torch.device(device), Path(folder))
    except ProblemError as error:
        print(printable(str(error)), file=sys.stderr)
        return error.exit_code
    except BaseException as error:  # the candidate's boundary: it may raise any exception
        print(printable(describe(error, solution)), file=sys.stderr)
        return EXIT_NOT_PASSED
    return EXIT_PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
