"""Makes a small case of a problem whose own sizes do not fit the device.

The search runs the reference on torch's meta device, which allocates and computes nothing. For the
emulator it halves the largest size, again and again, as long as the model still runs. Odd sizes come
first, so that kernels meet extents that no block divides. For a GPU it halves the batch until the
case fits its memory. The search looks at no clock: a problem has one small case for the CPU, and one
for a GPU with a given memory.

The meta device cannot tell whether indices are in range. So the case for the CPU runs once on real
data. If that fails, the search begins again and gives equal sizes equal values, since the size of a
table and the bound of its indices are equal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from harness.aten.dispatching import DispatchMode
from harness.aten.torch_state import kept_state
from harness.judge.inputs.draws import seeded
from harness.judge.inputs.memory_fit import held_by
from harness.judge.inputs.recurrence import OneStep
from harness.project import problems
from harness.project.cases import UNDECLARED
from harness.project.excerpt import model_excerpt
from harness.project.extents import Extent, Extents
from harness.project.problems import Problem
from harness.system.interrupts import Interrupted
from harness.wire.structure import tensors_of

#: A case of load 1: elements of inputs, outputs and parameters, elements of all results that its
#: forward computes, and floating-point operations of its products and convolutions. The emulator
#: judges it in seconds.
MOST_ELEMENTS, MOST_RESULTS, MOST_FLOPS = 1 << 18, 1 << 20, 1 << 25
#: The largest load that needs no smaller case.
ENOUGH = 16.0
#: The largest load that the CPU judges within the default timeouts, if most of it is torch's work.
LARGEST_LOAD = 256.0
#: The load with a size halved, as a share of that before, at which the halving stays.
_WORTH_IT = 0.9
#: Runs on the meta device, and operators in all of them, after which the search ends.
_MOST_RUNS, _MOST_OPERATORS = 120, 200_000


class Small(NamedTuple):
    """A problem's small case.

    Attributes:
        constants: The constants that it replaces; empty if the file's own sizes are small enough.
        load: Its load.
    """

    constants: dict[str, Any]
    load: float

    @property
    def words(self) -> str:
        """The constants as ``--set`` takes them."""
        return ", ".join(f"{name}={value!r}" for name, value in self.constants.items())


class _Work(DispatchMode):  # type: ignore[no-untyped-call]
    """Counts what a forward computes."""

    def __init__(self) -> None:
        super().__init__()
        self.results = 0
        self.flops = 0
        self.operators = 0
        self._times = 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operators += 1
        self.results += self._times * sum(tensor.numel() for tensor in tensors_of(result))
        if (count := flop_registry.get(func.overloadpacket)) is not None:
            self.flops += self._times * count(*args, **(kwargs or {}), out_val=result)
        return result

    @contextlib.contextmanager
    def counted(self, times: int) -> Iterator[None]:
        """Counts what runs in the block so many times."""
        self._times = times
        try:
            yield
        finally:
            self._times = 1


def small_case(problem: Problem, memory_bytes: int | None = None, is_round: bool = False) -> Small | None:
    """Searches the small case of a problem that declares no cases.

    Args:
        problem: The problem.
        memory_bytes: The memory in bytes that a case may need on the GPU that judges; None on the CPU.
        is_round: Whether sizes stay as round as they are, for KernelBench, which judges kernels at
            the problem's own sizes alone. Otherwise odd sizes come first.

    Returns:
        The case; on a GPU, its load is a share of the memory. None if the problem declares cases, or
        does not run on the meta device.

    Raises:
        ProblemError: The problem's body raised.
    """
    if problem.cases != UNDECLARED:
        return None
    small = _Search(problem, memory_bytes, is_round=is_round).run()
    if memory_bytes is not None or small is None or not small.constants or small.load > LARGEST_LOAD:
        return small
    if _runs(problem, small.constants):
        return small
    tied = _Search(problem, memory_bytes, is_round=is_round, is_tied=True).run()
    if tied is None or tied.load > LARGEST_LOAD:  # too large to try
        return tied
    return tied if _runs(problem, tied.constants) else Small({}, float("inf"))


@kept_state()
def _runs(problem: Problem, constants: dict[str, Any]) -> bool:
    """Returns whether the reference runs on real data."""
    try:
        module = problems.load(problem, constants)
        with seeded(0), torch.no_grad():
            module.model(*module.get_init_inputs())(*module.get_inputs())
    except Interrupted:
        raise
    except BaseException:  # the problem's own code, with sizes that it may not allow
        return False
    finally:
        problems.forget(problem, constants)
    return True


class _Run(NamedTuple):
    """A forward on the meta device: the shapes of its inputs, and its load."""

    shapes: list[tuple[int, ...]]
    load: float


class _Search:
    """The search for one problem's small case.

    Args:
        problem: The problem.
        memory_bytes: The memory that a case may need on a GPU; None on the CPU.
        is_round: Whether no size becomes odd that is even.
        is_tied: Whether equal sizes stay equal.
    """

    def __init__(self, problem: Problem, memory_bytes: int | None, *, is_round: bool, is_tied: bool = False):
        self._problem = problem
        self._memory_bytes = memory_bytes
        self._is_round = is_round
        self._is_tied = is_tied
        self._calls_model = True
        self._operators = 0
        self._all = Extents(problem.source)
        unseen = model_excerpt(problem).constants  # a solution has such a constant in its own text
        self._values = {one: one.value for one in self._all.found if one.name not in unseen}
        self._runs = 0

    @kept_state()
    def run(self) -> Small | None:
        """Returns the small case; None if the problem does not run on the meta device."""
        problems.load(self._problem, {})  # its error is the problem's, not that of a size
        own = self._run_with(self._values)
        if own is None:  # its forward may read values; then the sizes of inputs and parameters count alone
            self._calls_model = False
            own = self._run_with(self._values)
        if own is None or own.load <= (ENOUGH if self._memory_bytes is None else 1):
            return None if own is None else Small({}, own.load)
        load = own.load
        if self._memory_bytes is not None:
            load = self._with_less_batch(own)
        load = self._halved(load, crowds=False)
        if load > ENOUGH:
            load = self._halved(load, crowds=True)
        if self._memory_bytes is None and not self._is_round:
            load = self._made_odd(load)
        return Small(self._all.constants(self._values), load)

    def _with_less_batch(self, own: _Run) -> float:
        """Halves the batch until the load is 1, and returns the load.

        The batch is the first size that changes only the first extent of inputs.
        """
        run = own
        for extent, value in list(self._values.items()):
            while run.load > 1 and self._values[extent] > 1:
                values = {**self._values, extent: self._values[extent] // 2}
                found = self._run_with(values)
                if found is None or not _is_less_batch(run.shapes, found.shapes):
                    break
                self._values, run = values, found
            if self._values[extent] != value:
                break
        return run.load

    def _made_odd(self, load: float) -> float:
        """Adds 1 to even sizes that came down, where the model still runs, and returns the load."""
        for extent, value in self._values.items():
            if value == extent.value or value % 2:
                continue
            equal = [one for one, other in self._values.items() if other == value] if self._is_tied else [extent]
            values = {**self._values, **dict.fromkeys(equal, value + 1)}
            found = self._load_of(values)
            if found is not None and found <= ENOUGH:
                self._values, load = values, found
        return load

    def _halved(self, load: float, crowds: bool) -> float:
        """Halves sizes until the load is 1 or no size can shrink, and returns the load.

        Args:
            load: The load now.
            crowds: Whether a size may come down to one that divided it, as channels to groups of one.
        """
        stuck: set[Extent] = set()
        while load > 1 and self._runs < _MOST_RUNS and self._operators < _MOST_OPERATORS:
            rest = [one for one in self._values if one not in stuck and self._values[one] > 2]
            if not rest:
                break
            largest = max(rest, key=lambda one: self._values[one])
            found = self._smaller(largest, load, crowds)
            if found is None:
                stuck.add(largest)
            else:
                self._values, load = found
        return load

    def _smaller(self, extent: Extent, load: float, crowds: bool) -> tuple[dict[Extent, int], float] | None:
        """Returns values with a smaller extent, and their load; None if the model allows none."""
        value = self._values[extent]
        equal = [one for one, other in self._values.items() if other == value]
        divisors = [one for one in self._values if one.value < extent.value and extent.value % one.value == 0]
        least = max((self._values[one] for one in divisors), default=0)
        tried: list[dict[Extent, int]] = []
        for half in _halves(value, self._is_round):
            if crowds or half > least:
                if not self._is_tied:
                    tried.append({extent: half})
                tried.append(dict.fromkeys(equal, half))
        tried.append({one: self._values[one] // 2 for one in [*equal, *divisors] if self._values[one] > 3})
        for changed in tried:
            values = {**self._values, **changed}
            lower = self._load_of(values) if values != self._values else None
            if lower is not None and lower <= _WORTH_IT * load:
                return values, lower
            if lower == load and len(changed) == 1:
                break  # a size of nothing that is counted
        return None

    def _load_of(self, values: dict[Extent, int]) -> float | None:
        """Returns the load of a case; None if the model does not run with these values."""
        run = self._run_with(values)
        return None if run is None else run.load

    @kept_state()
    def _run_with(self, values: dict[Extent, int]) -> _Run | None:
        """Runs a case; None if the model does not run with these values."""
        self._runs += 1
        constants = self._all.constants(values)
        work = _Work()
        try:
            module = problems.load(self._problem, constants)
            with torch.device("meta"), seeded(0), torch.no_grad():
                arguments, inputs = module.get_init_inputs(), module.get_inputs()
                if not (isinstance(arguments, list | tuple) and isinstance(inputs, list | tuple)):
                    return None
                model = module.model(*arguments)
                with work, OneStep(work.counted):
                    results = list(tensors_of(model(*inputs))) if self._calls_model else []
        except Interrupted:
            raise
        except BaseException:  # the problem's own code, with sizes that it may not allow
            return None
        finally:
            self._operators += work.operators
            problems.forget(self._problem, constants)
        if self._calls_model and not (results and all(tensor.numel() for tensor in results)):
            return None
        given = list(tensors_of(list(inputs)))
        size = held_by(given, results, list(model.parameters()))
        if self._memory_bytes is not None:
            load = size.device_bytes / self._memory_bytes
        else:
            load = max(size.elements / MOST_ELEMENTS, work.results / MOST_RESULTS, work.flops / MOST_FLOPS)
        return _Run([tuple(tensor.shape) for tensor in given], float(load))


def _is_less_batch(before: list[tuple[int, ...]], after: list[tuple[int, ...]]) -> bool:
    """Returns whether inputs have fewer samples, and are otherwise as before."""
    return after != before and [shape[1:] for shape in after] == [shape[1:] for shape in before]


def _halves(value: int, is_round: bool) -> Iterable[int]:
    """Yields smaller values, those first that few block sizes divide, or only halves and quarters."""
    half = value // 2
    if is_round:
        return [one for one in (half, value // 4) if one >= 2]
    tried = [half | 1, half, 3 * value // 8, value // 4 | 1, value // 4]
    return [one for one in dict.fromkeys(tried) if 2 <= one < value]
