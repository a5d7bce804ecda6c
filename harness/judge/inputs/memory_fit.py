"""Estimates which cases fit a machine, by a run on torch's meta device that allocates nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.aten.torch_state import kept_state
from harness.errors import ProblemError
from harness.judge.inputs.draws import seeded
from harness.judge.inputs.recurrence import OneStep
from harness.project import problems
from harness.project.problems import Problem
from harness.system.memory import available_memory, size_text
from harness.wire.structure import tensors_of

#: Elements of inputs, outputs and parameters that the emulator still handles in seconds.
MAX_ELEMENTS = 1 << 22
#: A case with at most as many elements of inputs and parameters, and no larger number among its arguments, has few
#: elements of outputs, too: of an outer product, 2^26.
FEW_ELEMENTS = 1 << 13
#: Peak bytes per judged element: float64 and float32 references, gradients, and the arena. That is 8
#: + 4 bytes each for value, gradient, cotangent and saved tensors, with the candidate's copies
#: beside them.
PEAK_BYTES_PER_ELEMENT = 160
#: Seconds of judging on the emulator per million elements, for kernels with few operations per
#: element, such as group norm. A product or convolution takes up to fifty times as long.
SECONDS_PER_MILLION = 3.0
#: The same on a GPU, where references come in pieces: arena, the judge's private copies, candidate
#: and baseline.
DEVICE_BYTES_PER_ELEMENT = 26
#: The same for a reference that cannot come in pieces, since no output has a place for each sample,
#: as a loss has none. Its float64 inputs and what it computes of them lie in memory at once.
WHOLE_DEVICE_BYTES_PER_ELEMENT = 52
#: The share of a GPU's memory that a case may need. The CUDA contexts of all processes need the rest.
GPU_SHARE = 0.95


@dataclass(frozen=True)
class Size:
    """The size of a case, and the memory that it needs.

    Attributes:
        elements: Number of elements of inputs, outputs and parameters.
        has_samples: Whether an output has as many samples as the first input, so that the reference
            may be evaluated in pieces of the batch.
    """

    elements: int
    has_samples: bool = True

    @property
    def peak_bytes(self) -> int:
        """Estimated peak of judging the case on the CPU, in bytes."""
        return self.elements * PEAK_BYTES_PER_ELEMENT

    @property
    def device_bytes(self) -> int:
        """Estimated peak of judging the case on a GPU, in bytes."""
        of_each = DEVICE_BYTES_PER_ELEMENT if self.has_samples else WHOLE_DEVICE_BYTES_PER_ELEMENT
        return self.elements * of_each


@kept_state()
def size_of(problem: Problem, constants: dict[str, Any], *, is_rough: bool = False) -> Size | None:
    """Measure a case without allocating it; None if the reference does not run on the meta device.

    Args:
        problem: The problem.
        constants: The constants that the case replaces.
        is_rough: Whether outputs need not count if all else is small. The model is not called then:
            on the meta device, some operators first import torch's compiler, which takes a second.

    Raises:
        ProblemError: The problem's body raised.
    """
    module = problems.load(problem, constants)
    try:
        with torch.device("meta"), seeded(0), torch.no_grad():
            arguments, inputs = module.get_init_inputs(), module.get_inputs()
            if not (isinstance(arguments, list | tuple) and isinstance(inputs, list | tuple)):
                return None  # an iterator may have no end
            model = module.model(*arguments)
            given = [value for value in inputs if isinstance(value, torch.Tensor)]
            known = held_by(given, [], list(model.parameters()))
            if is_rough and known.elements <= FEW_ELEMENTS and _has_small_numbers((arguments, inputs)):
                return known
            with OneStep():
                result = model(*inputs)
    # A problem may do what meta tensors cannot; then its size is unknown, which is no error.
    except Exception:
        return None
    finally:
        problems.forget(problem, constants)
    return held_by(given, list(tensors_of(result)), list(model.parameters()))


def _has_small_numbers(values: Any) -> bool:
    if isinstance(values, list | tuple):
        return all(map(_has_small_numbers, values))
    return not isinstance(values, int) or values <= FEW_ELEMENTS


def held_by(
    inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]
) -> Size:
    """Return the size of a case with these tensors; no outputs means that they are not known."""
    batch = next((one.shape[0] for one in inputs if one.dim() and one.shape[0] > 1), None)
    has_samples = batch is None or not outputs or any(one.dim() and one.shape[0] == batch for one in outputs)
    return Size(sum(one.numel() for one in (*inputs, *outputs, *parameters)), has_samples)


def case_memory(device: torch.device) -> int | None:
    """Return the bytes of memory that a case may need on a GPU; None on the CPU."""
    return int(GPU_SHARE * torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else None


def free_memory(device: torch.device) -> int:
    """Return the bytes of free memory where a device's tensors lie."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else available_memory()


def spare_memory(device: torch.device) -> int:
    """Return the bytes that torch can still allocate here: free memory and torch's own cache."""
    kept = 0
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free_memory(device) + kept


def why_not(size: Size | None, available: int, is_chosen: bool = False) -> str | None:
    """Return why a case is left out by default on the CPU; None if it is not.

    Args:
        size: The case's size, if it is known.
        available: Bytes of free memory.
        is_chosen: Whether the case was made for the CPU, as small as its model allows.
    """
    if size is None:
        return None
    if size.elements > MAX_ELEMENTS and not is_chosen:
        return f"{size.elements:,} elements, more than the emulator handles in seconds ({MAX_ELEMENTS:,})"
    if size.peak_bytes > available // 2:
        return f"about {size.peak_bytes / 2**30:.1f} GiB at its peak, more than half of the free memory"
    return None


def check_room(problem: Problem, case: str, constants: dict[str, Any]) -> str | None:
    """Check whether the CPU has room to judge a case, before anything of its size is allocated.

    Args:
        problem: The problem.
        case: The case's name, for the message.
        constants: The constants that it replaces.

    Returns:
        A warning for a case beyond what the emulator handles in seconds, or beyond half of the free
        memory. None for other cases, and for one of unknown size.

    Raises:
        ProblemError: There is no room for the case, or the problem's body raised.
    """
    size, available = size_of(problem, constants, is_rough=True), available_memory()
    if size is None or why_not(size, available) is None:
        return None
    words = f"{problem.name}: case {case!r} has {size.elements:,} elements; judging one candidate needs about"
    free = f"of which {size_text(available)} are free"
    # This much remains if the reference is evaluated in small pieces.
    if size.device_bytes > available:
        raise ProblemError(
            f"{words} {size_text(size.peak_bytes)} of memory, {free}, and at least {size_text(size.device_bytes)}: set "
            "smaller constants with --set, or judge on a GPU with --device cuda"
        )
    seconds = SECONDS_PER_MILLION * size.elements / 1e6
    time = f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
    return (
        f"{words} {size_text(size.peak_bytes)} of memory, {free}, and at least {time} on the emulator: set "
        "smaller constants with --set, raise --timeout, or judge on a GPU with --device cuda"
    )


def shortage(problem: Problem, case: str, constants: dict[str, Any], device: torch.device, error: Exception) -> str:
    """Describe how much GPU memory a case would have needed, and how much there is."""
    size = size_of(problem, constants)
    free, total = torch.cuda.mem_get_info(device)
    needed = f"about {size.device_bytes / 2**30:.0f} GiB" if size is not None else "more than the device has"
    return (
        f"case {case!r} needs {needed} of device memory for inputs, outputs, gradients and references; "
        f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB are free ({error})"
    )
