"""The replies that a worker sends to the judge.

Every reply is a frozen dataclass; ``encoding`` turns it into JSON and back. The worker runs
untrusted code, so a reply is only the worker's claim and proves nothing.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass

from harness.records.kernels import CompiledKernel
from harness.wire.tensors import StateTensor, Value


@dataclass(frozen=True)
class Report:
    """A fault that the emulator saw (see ``records.Finding``).

    A suspicion becomes a fault only if the result depends on it.
    """

    kind: str
    kernel: str | None
    line: int | None
    message: str
    remedy: str
    accesses: str
    is_suspicion: bool = False


@dataclass(frozen=True)
class Ready:
    """Reports that the worker has imported torch and waits for ``Load``.

    ``confined`` names every layer of its confinement, and why that layer is missing (empty if it
    holds). The worker sends this before any candidate runs.
    """

    confined: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Building:
    """Reports that a compiler starts (``begin``) or has ended (``end``).

    Attributes:
        event: ``begin`` or ``end``.
        name: The extension's name.
        built: The new libraries, as in ``Loaded``.
        refused: The message and the log of each build that a compiler refused, by build key.
    """

    event: str
    name: str
    built: dict[str, str] = dataclasses.field(default_factory=dict)
    refused: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Described:
    """The arguments that a problem passes to a model's constructor and to its forward.

    The region of a tensor gives its shape and dtype only.
    """

    init_args: tuple[Value, ...]
    inputs: tuple[Value, ...]


@dataclass(frozen=True)
class Rehearsed:
    """Reports that a builder made the instance, and called it if it had built nothing before."""


@dataclass(frozen=True)
class Loaded:
    """Reports that the solution is imported.

    ``built`` maps build keys to files in the worker's build folder.
    """

    built: dict[str, str]
    has_init_inputs: bool
    parameter_map: dict[str, str]


@dataclass(frozen=True)
class Constructed:
    """Reports that the instance exists, and its state.

    ``built`` is as in ``Loaded``, for solutions that build late.
    """

    state: tuple[StateTensor, ...]
    built: dict[str, str]


@dataclass(frozen=True)
class OutputTensor:
    """The form of the tensor that the candidate returned at one position.

    ``fault`` says why the worker did not copy it; empty if it did.
    """

    shape: tuple[int, ...]
    dtype: str
    differentiable: bool
    fault: str


@dataclass(frozen=True)
class OutputPart:
    """One part of a forward's result (see ``wire.structure``).

    Attributes:
        path: Its place in the result: ``output``, ``output[1]``, ``output.logits``.
        kind: ``tensor``, ``sequence``, ``dict`` or ``value``; otherwise a description of a part
            that nothing can be compared with.
        value: The length of a sequence, the keys of a dict, or the ``repr`` of a plain value.
    """

    path: str
    kind: str
    value: str


@dataclass(frozen=True)
class Outputs:
    """Reports the outputs of a forward, in the order of their parts.

    The outputs lie in their regions if ``fault`` is empty in all of them. ``buffer_faults`` says,
    by name, why the worker did not copy a buffer. ``written`` has the positions of inputs to which
    the forward wrote, if only the values that were there.
    """

    structure: tuple[OutputPart, ...]
    tensors: tuple[OutputTensor, ...]
    buffer_faults: dict[str, str]
    reports: tuple[Report, ...]
    built: dict[str, str]
    written: tuple[int, ...] = ()


@dataclass(frozen=True)
class Gradients:
    """Reports that the gradients lie in their regions.

    Exceptions are ``missing`` (no gradient) and ``faults`` (wrong form). ``unasked`` names inputs
    and parameters that got a gradient other than zero although the judge did not ask for it, which
    only the second of two backwards tells, and frozen parameters that forward has unfrozen.
    """

    missing: tuple[str, ...]
    faults: dict[str, str]
    reports: tuple[Report, ...]
    built: dict[str, str]
    unasked: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failed:
    """Reports that the candidate raised an error.

    ``kind`` is one of ``build``, ``unsupported``, ``load``, ``runtime``, ``memory``,
    ``no_gradient``. ``build_key`` identifies the build that a compiler refused; else it is empty.
    """

    kind: str
    stage: str
    message: str
    log: str
    reports: tuple[Report, ...]
    build_key: str = ""


@dataclass(frozen=True)
class Timed:
    """Reports the times that the worker claims for a call.

    Attributes:
        milliseconds: The time that the call took.
        behind_ms: The time from its end until the host had seen the whole device idle.
    """

    milliseconds: float
    behind_ms: float


@dataclass(frozen=True)
class Varied:
    """Reports that the requested variant is in use.

    Attributes:
        was_known: Whether the variant existed before: compiled for an earlier candidate, or already
            used.
        frames: The number of functions that ``torch.compile`` has compiled for it so far.
        graph_breaks: The reasons why torch had to leave compiled code, one sentence each.
    """

    was_known: bool
    frames: int
    graph_breaks: tuple[str, ...]


@dataclass(frozen=True)
class Weighed:
    """Reports the bytes that a call held at its peak: parameters, results and scratch memory.

    The number is None if the worker cannot know it.
    """

    peak_bytes: int | None


@dataclass(frozen=True)
class Mapped:
    """Reports that the slots' arena is mapped."""


@dataclass(frozen=True)
class Armed:
    """Reports that the calls of a ``Loop`` are prepared."""


@dataclass(frozen=True)
class Looped:
    """Reports that all calls of a ``Loop`` are done.

    ``fault`` says what was wrong with a result's form; empty if nothing was.
    """

    fault: str


@dataclass(frozen=True)
class Launched:
    """A kernel or copy that ran on the device: its count, its owner and its total time.

    ``device_ms`` is None on the emulator, whose times mean nothing. ``is_copy`` marks a copy or
    fill by the driver, which is no kernel. ``bytes`` is the total that such copies moved; it is
    None for kernels and if the profiler does not report it. ``aside`` counts the runs on another
    stream than the caller's.
    """

    name: str
    calls: int
    own: bool
    device_ms: float | None
    is_copy: bool = False
    bytes: int | None = None
    aside: int = 0


@dataclass(frozen=True)
class EmulatedWork:
    """The work that all judged calls of an instance did on the emulator.

    Attributes:
        forwards: The number of forwards.
        threads: The number of threads of the candidate's own kernels.
        elements: The number of elements of the largest tensor passed to each torch operator, summed
            over the operators that compute something.
    """

    forwards: int
    threads: int
    elements: int


@dataclass(frozen=True)
class Traced:
    """Reports the kernels that calls launched and the torch operators that they ran.

    Attributes:
        seen: Whether the worker can see kernels at all.
        forward: The kernels of a forward, in the order of their first launch.
        backward: The kernels of its backward.
        inference: The kernels of a forward without gradients, as the judge times it; empty on the
            emulator.
        operators: The heavy torch operators by direction, with the largest number of runs in one
            call.
        work: The work of all judged calls; None on a GPU.
        refused: The first telling line of each build that has failed so far.
    """

    seen: bool
    forward: tuple[Launched, ...]
    backward: tuple[Launched, ...]
    inference: tuple[Launched, ...]
    operators: dict[str, dict[str, int]]
    work: EmulatedWork | None
    refused: tuple[str, ...]


@dataclass(frozen=True)
class Compiled:
    """Reports what nvcc made of the candidate's CUDA sources.

    Attributes:
        kernels: The kernels that nvcc compiled; empty if there was nothing to compile or all
            failed.
        fault: The cause of a failed compilation: ``source`` for the candidate's code, ``machine``
            for something that this machine lacks; else empty.
        error: The compiler's first errors, or what this machine lacks; empty if nothing failed.
        line: The solution's line of the first error, if the error has one.
        kernel: The kernel that the error is about, if known.
        log: The compiler's full output about the failure.
        seconds: The time that nvcc ran.
    """

    kernels: tuple[CompiledKernel, ...]
    fault: str
    error: str
    line: int | None
    kernel: str | None
    log: str
    seconds: float


@dataclass(frozen=True)
class Inspected:
    """Reports what the candidate did to its process.

    Attributes:
        replaced: The names of functions that the candidate has replaced, among those that tell
            time, wait, compare or send messages.
        flags: The torch settings that it left changed, one sentence each.
        threads: The names of Python threads that it left running.
    """

    replaced: tuple[str, ...]
    flags: tuple[str, ...]
    threads: tuple[str, ...]


@dataclass(frozen=True)
class Released:
    """Reports that a command without results is done."""


Reply = (
    Ready
    | Building
    | Loaded
    | Constructed
    | Described
    | Rehearsed
    | Outputs
    | Gradients
    | Varied
    | Timed
    | Weighed
    | Mapped
    | Armed
    | Looped
    | Traced
    | Compiled
    | Inspected
    | Released
    | Failed
)


REPLIES: dict[str, type] = {cls.__name__: cls for cls in typing.get_args(Reply)}
