"""Does a solution return the same bits each time, also beside other processes on the same device?

    python3 -m benchmarks.steadiness group_norm/streamed --case full --device cuda:0 --neighbours 2 --seconds 60

Calls forward, then forward with backward, again and again on one draw, for half of the time each, and compares every
result with the first. Neighbours are processes that start, compute for up to 0.2 s and end, one after another: the GPU
turns from one process to the next, which stretches the moments in which a kernel waits for nothing. Prints how many
calls differed, and of the first of them which elements: flat index and length of each run. Exit code 1 where one did. A
solution whose sums depend on the order of atomics differs without being wrong; 64 elements in one of two thousand calls
are a race. The solution runs in this process, unconfined: only for texts that you trust.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils import cpp_extension

from benchmarks.common import positive, program, table
from harness.compilation.errors import BuildError
from harness.device import devices
from harness.errors import HarnessError, UsageError
from harness.executors.tools import tools_for
from harness.judge.exchange.exchange import as_bytes, same_bytes
from harness.judge.inputs.draws import derive_seed, draw_inputs, init_args
from harness.project import problems
from harness.project.paths import harness_home, project_root
from harness.project.problems import Problem
from harness.project.solutions import select
from harness.system.processes import die_with_parent
from harness.wire.structure import taken_apart
from harness.worker.platforms import platform_for
from harness.worker.solution_module import ContractError, import_solution

ELEMENTS = 1 << 24
BURST_S = 0.2
#: So many calls that differ are told of in full, and so many runs of elements of each.
MOST_TOLD, MOST_RUNS = 5, 6
Results = list[torch.Tensor]


class Drawn(NamedTuple):
    """What a solution is called with: its constructor's arguments, its inputs, and a seed for all else."""

    args: list[Any]
    inputs: list[Any]
    seed: int


def drawn(problem: Problem, case: str, device: torch.device) -> Drawn:
    """A draw of a case, the same each time.

    Raises:
        UsageError: The problem has no such case.
        ProblemError: It does not run.
    """
    if case not in problem.cases:
        raise UsageError(f"--case {case}: {problem.name} has {', '.join(problem.cases)}")
    module = problems.load(problem, dict(problem.cases[case]))
    args = init_args(problem, module, derive_seed(case, "init"))
    return Drawn(args, draw_inputs(problem, module, derive_seed(case, "inputs"), device), derive_seed(case, "others"))


def calls_of(solution: Path, draw: Drawn, device: torch.device) -> dict[str, Callable[[], Results]]:
    """What to call, by direction: each call returns the tensors that are to be the same.

    Raises:
        HarnessError: The solution does not build, or is none.
    """
    torch.manual_seed(draw.seed)
    try:
        model = import_solution(str(solution)).ModelNew(*draw.args).to(device)
    except (BuildError, ContractError) as error:
        raise HarnessError(f"{solution}: {error}") from None
    tensors = [value for value in draw.inputs if isinstance(value, torch.Tensor)]
    leaves = [value.requires_grad_() for value in tensors if value.is_floating_point()]
    leaves += [parameter for parameter in model.parameters() if parameter.requires_grad]

    def outputs() -> Results:
        torch.manual_seed(draw.seed)  # of whatever a forward draws
        return taken_apart(model(*draw.inputs))[1]

    def forward() -> Results:
        with torch.no_grad():
            return outputs()

    places = [number for number, one in enumerate(outputs()) if one.requires_grad]
    cotangents = [torch.randn_like(one) for number, one in enumerate(forward()) if number in places]

    def with_backward() -> Results:
        found = outputs()
        gradients = torch.autograd.grad([found[place] for place in places], leaves, cotangents, allow_unused=True)
        return [one for one in gradients if one is not None]

    return {"forward": forward, **({"forward with backward": with_backward} if places else {})}


def differing(expected: Results, received: Results) -> list[str]:
    """For each tensor that is not the same, bit for bit, its elements that are not, in words."""
    told = []
    for number, (one, other) in enumerate(zip(expected, received, strict=True)):
        if same_bytes(one, other):
            continue
        apart = as_bytes(one.detach()) != as_bytes(other.detach())
        places = torch.nonzero(apart.view(-1, one.element_size()).any(dim=1)).reshape(-1)
        is_gap = places.diff() != 1
        begins = torch.cat([places[:1], places[1:][is_gap]])[:MOST_RUNS].tolist()
        ends = torch.cat([places[:-1][is_gap], places[-1:]])[:MOST_RUNS].tolist()
        runs = ", ".join(f"{last - first + 1} from {first}" for first, last in zip(begins, ends, strict=True))
        told.append(f"tensor {number}: {len(places)} of {one.numel()} elements: {runs}")
    return told


def repeated(call: Callable[[], Results], seconds: float, say: Callable[[str], None]) -> tuple[int, int]:
    """Calls, and how many of them differed from the first."""
    expected = [tensor.clone() for tensor in call()]
    calls = odd = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = differing(expected, call())
        calls += 1
        odd += bool(found)
        if found and odd <= MOST_TOLD:
            say(f"call {calls}: {'; '.join(found)}")
    return calls, odd


def be_neighbour(device: torch.device) -> None:
    """Start processes that compute on the device for a moment, one after another, until the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(os.getppid())
    while True:
        process = os.fork()
        if process == 0:
            try:
                die_with_parent(os.getppid())
                values = torch.rand(ELEMENTS, device=device)
                end = time.monotonic() + random.uniform(0, BURST_S)
                while time.monotonic() < end:
                    values.mul_(1.0001)
                    float(values[0])
            finally:
                os._exit(0)  # where there was no room, the next one may find some
        os.waitpid(process, 0)


@contextlib.contextmanager
def neighbours(number: int, device: str) -> Iterator[None]:
    """Have so many of them beside the block.

    Raises:
        HarnessError: One has ended before the block did.
    """
    command = [sys.executable, "-m", "benchmarks.steadiness", "-", "--device", device, "--be-neighbour"]
    with contextlib.ExitStack() as stack:
        started = []
        for _ in range(number):
            started.append(stack.enter_context(subprocess.Popen(command)))
            stack.callback(started[-1].kill)
        yield
        if any(process.poll() is not None for process in started):
            raise HarnessError("a neighbour ended before the calls did: see what it said above")


def measured(options: argparse.Namespace) -> int:
    """Build, call and print; the exit code."""
    device = devices.choose(options.device)
    candidate, *others = select(project_root(None), [options.solution], options.problem)
    if others:
        raise UsageError(f"{options.solution} names several solutions: say which one")
    platform = platform_for(str(device), tools_for(str(device), harness_home(options.home)).libraries)
    draw = drawn(candidate.problem, options.case, device)
    with tempfile.TemporaryDirectory() as folder:
        loader: Any = platform.loader(candidate.solution.path, {}, Path(folder), lambda what, name: None)
        vars(cpp_extension)["load_inline"] = loader.load_inline
        with platform.running(), neighbours(options.neighbours, str(device)):
            calls = calls_of(candidate.solution.path, draw, device)
            found = {name: repeated(call, options.seconds / len(calls), print) for name, call in calls.items()}
    print(f"{candidate.solution.name}, case {options.case}, {device}, beside {options.neighbours} neighbours")
    print(table(("", "calls", "differed"), [(name, *counts) for name, counts in found.items()]))
    return 1 if any(odd for _, odd in found.values()) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("solution", help="problem/variant, or a file")
    parser.add_argument("--problem", help="of a file")
    parser.add_argument("--case", default="full")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--neighbours", type=int, default=0, metavar="N", help="so many at a time [default: none]")
    parser.add_argument("--seconds", type=positive, default=60.0)
    parser.add_argument("--home", help="HARNESS_HOME, where the emulator's runtime is kept")
    parser.add_argument("--be-neighbour", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.neighbours < 0:
        parser.error("--neighbours is not to be negative")
    if options.be_neighbour:
        be_neighbour(torch.device(options.device))
    return program(lambda: measured(options))


if __name__ == "__main__":
    sys.exit(main())
