"""The program that Nsight Compute watches: a solution's calls on one case, nothing judged and nothing confined.

``python -m harness.profiling.target SOLUTION PROBLEM CONSTANTS DEVICE FOLDER``: two files, the case's constants as
``wire.values`` encodes them, ``cpu`` or ``cuda:N``, and the folder where libraries are built, and taken from where
they are there already.
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
from harness.worker.candidate import import_solution, own_init_args
from harness.worker.failures import describe

SEED = 0
WARM_UPS = 2


def run(solution: str, problem: Problem, constants: dict[str, Any], device: torch.device, folder: Path) -> None:
    """Call a solution: twice to warm up, then once where a profiler looks; a forward, and a forward with backward.

    Args:
        solution: Path of its file.
        problem: The problem that it solves.
        constants: The case's constants.
        device: Where it runs.
        folder: Where its libraries are built.

    Raises:
        ProblemError: The problem does not run.
        Exception: Whatever the solution raises.
    """
    module = problems.load(problem, constants)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        built = {path.stem: path for path in folder.glob("*.so")}
        capability = torch.cuda.get_device_capability(device)
        loader = CudaLoader(Path(solution), built, folder, lambda event, name: None, capability)
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
    """One forward without gradients, and one with its backward.

    Args:
        model: The solution's instance.
        inputs: The arguments of its ``forward``; floating ones are differentiated.
    """

    def __init__(self, model: torch.nn.Module, inputs: Sequence[Any]):
        self._model = model
        self._inputs = inputs
        floating = [one for one in inputs if isinstance(one, torch.Tensor) and one.is_floating_point()]
        self._leaves = [*(one.requires_grad_() for one in floating), *model.parameters()]
        self._cotangents: list[torch.Tensor] = []

    def __call__(self) -> None:
        """Run both; cotangents are drawn the first time, and are no part of the work later."""
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
    """The window in which ``ncu --profile-from-start off`` looks; on the CPU nobody does."""
    if device.type != "cuda":
        yield
        return
    torch.cuda.synchronize(device)
    with torch.cuda.profiler.profile():
        yield
        torch.cuda.synchronize(device)


def main(arguments: Sequence[str]) -> int:
    """Run the program; what goes wrong is said on stderr, in a line or a few."""
    solution, path, constants, device, folder = arguments
    try:
        problem = problems.read_problem(Path(path))
        run(solution, problem, decode_plain(constants), torch.device(device), Path(folder))
    except ProblemError as error:
        print(printable(str(error)), file=sys.stderr)
        return error.exit_code
    except BaseException as error:  # the candidate's boundary: whatever it raises is told
        print(printable(describe(error, solution)), file=sys.stderr)
        return EXIT_NOT_PASSED
    return EXIT_PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
