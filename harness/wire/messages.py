"""The messages between judge and worker, and their strict decoding.

Every message is a frozen dataclass. On the wire it is one JSON object with its class name under
``type``. Decoding refuses unknown types, missing fields, extra fields and wrong field types. The
worker runs untrusted code, so whatever it sends is either one of these objects or a broken rule.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from dataclasses import dataclass
from typing import Any

from harness.records.record import CompiledKernel

#: The instance that ``Forward.aside`` names.
SAME_INSTANCE, ANOTHER_INSTANCE = "same", "another"
#: No count, size or line number is larger.
MAX_INTEGER = 1 << 64


class SchemaError(ValueError):
    """The error for bytes that are not a message of this schema."""


@dataclass(frozen=True)
class Region:
    """The place and the form of a dense tensor in the arena.

    Attributes:
        offset: The first byte, a multiple of 256.
        shape: The tensor's shape.
        dtype: The dtype's name without prefix, such as ``float32``.
        order: The dimensions from the largest stride to the smallest; empty for row-major.
    """

    offset: int
    shape: tuple[int, ...]
    dtype: str
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Value:
    """An argument: either a tensor in the arena or the JSON encoding of a plain Python value."""

    region: Region | None
    plain: str | None


@dataclass(frozen=True)
class StateTensor:
    """A parameter or buffer of the candidate's instance.

    Attributes:
        name: The dotted name, as in ``state_dict``.
        is_parameter: True for a parameter, False for a buffer.
        shape: The tensor's shape.
        dtype: The tensor's dtype.
        fill: The one value that all elements have; None if they differ.
    """

    name: str
    is_parameter: bool
    shape: tuple[int, ...]
    dtype: str
    fill: float | None


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


# ----------------------------------------------------------------- judge to worker


@dataclass(frozen=True)
class Load:
    """Asks the worker to import the solution.

    Attributes:
        solution: The path of the solution file.
        cached: The libraries that the judge has kept, by build key.
        check: The architecture whose limits count if the emulator checks every access; else empty.
        refused: The message and the log of each build that a compiler has already refused, by build
            key.
    """

    solution: str
    cached: dict[str, str]
    check: str = ""
    refused: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Construct:
    """Asks the worker to create the instance for a case.

    The arena's descriptor comes with this message.

    If ``own_args`` is set, the worker calls the solution's own ``get_init_inputs``. Before that it
    sets the case's constants in the solution's module, for those names that the module defines.
    ``training`` gives the training modes of the modules (see ``wire.state.modes_of``).
    """

    arena_bytes: int
    own_args: bool
    init_args: tuple[Value, ...]
    constants: str
    training: dict[str, bool]


@dataclass(frozen=True)
class Forward:
    """Asks the worker to copy the state in, call the instance and copy its outputs out.

    Attributes:
        inputs: The arguments.
        state: The parameters and buffers, by the candidate's names.
        outputs: The regions for the outputs.
        buffers: The buffers to copy out after the call, with their regions.
        differentiate: Whether autograd records the call.
        thread_order: The order in which the emulator runs threads.
        order_seed: The seed of torch's generators and of a random thread order.
        frozen: The tensors that need no gradient in this trial, by ``input_key`` or the candidate's
            parameter name.
        aside: The instance that the worker calls on other values before it reads the result:
            ``SAME_INSTANCE``, ``ANOTHER_INSTANCE``, or empty for none.
        calls: The number of calls of the instance. The worker copies out the outputs of the last
            one.
        aside_calls: The number of calls of the instance that ``aside`` names.
    """

    inputs: tuple[Value, ...]
    state: tuple[tuple[str, Region], ...]
    outputs: tuple[Region, ...]
    buffers: tuple[tuple[str, Region], ...]
    differentiate: bool
    thread_order: str
    order_seed: int
    frozen: tuple[str, ...] = ()
    aside: str = ""
    calls: int = 1
    aside_calls: int = 1


@dataclass(frozen=True)
class Backward:
    """Asks the worker to differentiate the last outputs and copy the gradients into their regions.

    Attributes:
        cotangents: One region per output.
        input_gradients: The position of each input to differentiate, and the region for its
            gradient.
        state_gradients: The name of each parameter to differentiate, and the region for its
            gradient.
        expanded: Whether each cotangent is the first element of its region, expanded to the
            region's shape (stride 0).
    """

    cotangents: tuple[Region, ...]
    input_gradients: tuple[tuple[int, Region], ...]
    state_gradients: tuple[tuple[str, Region], ...]
    expanded: bool = False


@dataclass(frozen=True)
class LoadReference:
    """Asks the worker to load the problem's own ``Model`` under these constants.

    Only the baseline's worker receives this message; the judge trusts that worker.
    """

    problem: str
    constants: str


@dataclass(frozen=True)
class Vary:
    """Asks the baseline to run the reference in another variant from now on; follows ``Construct``.

    Each variant has its own instance. A new instance needs a ``Forward`` before any other command.
    The worker keeps compiled code until it loads another problem or case.

    Attributes:
        name: The variant's name. If the worker knows it already, the worker uses that variant
            again.
        compile_mode: The mode of ``torch.compile``; empty to compile nothing.
        allows_tf32: Whether matrix products and convolutions may use TF32.
        is_empty: Whether a call launches one kernel that does nothing, in place of the reference.
    """

    name: str
    compile_mode: str
    allows_tf32: bool
    is_empty: bool


@dataclass(frozen=True)
class TimeCalls:
    """Asks the worker to time one call on the inputs of the last ``Forward``.

    Attributes:
        backward: The backward to run with the forward; None for a forward under ``no_grad`` alone.
        head_start_us: Microseconds that a kernel spins before the call's own kernels start, so that
            the host can launch ahead of the device.
        is_replayed: Whether the worker replays a CUDA graph of the call. The worker captures the
            graph at the first such command.
    """

    backward: Backward | None
    head_start_us: int
    is_replayed: bool


@dataclass(frozen=True)
class Weigh:
    """Asks for the device memory that one call holds at its peak.

    ``backward`` as in ``TimeCalls``.
    """

    backward: Backward | None


@dataclass(frozen=True)
class MapSlots:
    """Asks the worker to map the arena of ``Loop``'s slots.

    Its descriptor comes with this message.
    """

    arena_bytes: int


@dataclass(frozen=True)
class DropSlots:
    """Asks the worker to unmap the arena of ``Loop``'s slots."""


@dataclass(frozen=True)
class Slot:
    """One call of a ``Loop``.

    Attributes:
        first: Whether the call's tensors lie in the first arena; else they lie in the slots' arena.
        inputs: (position, region) of each argument that is a tensor. The other arguments are those
            of the last ``Forward``.
        cotangents: The cotangents for the outputs; empty for a forward.
        results: The regions for the results.
        seed: The seed for the random numbers that the call draws.
    """

    first: bool
    inputs: tuple[tuple[int, Region], ...]
    cotangents: tuple[Region, ...]
    results: tuple[Region, ...]
    seed: int


@dataclass(frozen=True)
class Loop:
    """Asks the worker to prepare one call for each slot, on the state of the last ``Forward``.

    ``Go`` then runs the calls.

    Attributes:
        slots: The calls.
        leaves: The tensors that each call differentiates, in the order of its results: parameter
            names and ``input_key``s. If there are none, a call is a forward under ``no_grad`` and
            its results are the outputs.
        store_only: Whether the worker only writes the results' regions and calls nothing. The judge
            asks this of the baseline.
    """

    slots: tuple[Slot, ...]
    leaves: tuple[str, ...]
    store_only: bool


@dataclass(frozen=True)
class Go:
    """Asks the worker to run the calls of the last ``Loop`` without a pause."""


@dataclass(frozen=True)
class Trace:
    """Asks which kernels and operators ran in a forward and, if there is one, a backward.

    The worker runs the forward as in the last ``Forward``. Its reply also covers earlier calls.
    """

    backward: Backward | None


@dataclass(frozen=True)
class Compile:
    """Asks for nvcc to compile the CUDA sources that the candidate has passed to a loader so far.

    The worker runs nothing of what nvcc compiles.
    """

    arch: str


@dataclass(frozen=True)
class Inspect:
    """Asks what the candidate has replaced, changed and left running in its process."""


@dataclass(frozen=True)
class Release:
    """Asks the worker to drop all instances, the arenas and unused device memory.

    Compiled code stays.
    """


# ----------------------------------------------------------------- worker to judge


@dataclass(frozen=True)
class Ready:
    """Reports that the worker has imported torch and waits for ``Load``.

    ``confined`` names every layer of its confinement, and why that layer is missing (empty if it
    holds). The worker sends this before any candidate runs.
    """

    confined: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Building:
    """Reports that a compiler starts (``begin``) or has ended (``end``)."""

    event: str
    name: str


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
    by name, why the worker did not copy a buffer.
    """

    structure: tuple[OutputPart, ...]
    tensors: tuple[OutputTensor, ...]
    buffer_faults: dict[str, str]
    reports: tuple[Report, ...]
    built: dict[str, str]


@dataclass(frozen=True)
class Gradients:
    """Reports that the gradients lie in their regions.

    Exceptions are ``missing`` (no gradient) and ``faults`` (wrong form).
    """

    missing: tuple[str, ...]
    faults: dict[str, str]
    reports: tuple[Report, ...]
    built: dict[str, str]


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


Command = (
    Load
    | LoadReference
    | Construct
    | Vary
    | Forward
    | Backward
    | TimeCalls
    | Weigh
    | MapSlots
    | DropSlots
    | Loop
    | Go
    | Trace
    | Compile
    | Inspect
    | Release
)
Reply = (
    Ready
    | Building
    | Loaded
    | Constructed
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

COMMANDS: dict[str, type] = {cls.__name__: cls for cls in typing.get_args(Command)}
REPLIES: dict[str, type] = {cls.__name__: cls for cls in typing.get_args(Reply)}


def input_key(position: int) -> str:
    """Returns the name that ``Gradients`` gives to the input at a position.

    It cannot clash with a parameter, since no parameter name has a colon.
    """
    return f"input:{position}"


def encode(message: Command | Reply) -> bytes:
    """Encodes a message as UTF-8 JSON."""
    body = {"type": type(message).__name__, **dataclasses.asdict(message)}
    return json.dumps(body, allow_nan=True).encode()


def decode(data: bytes, known: dict[str, type]) -> Any:
    """Decodes a message and checks it against the schema.

    Args:
        data: UTF-8 JSON.
        known: The message classes by name: ``COMMANDS`` or ``REPLIES``.

    Returns:
        An instance of one of the classes.

    Raises:
        SchemaError: The data is anything else.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"not JSON: {error}") from None
    if not isinstance(body, dict) or not isinstance(body.get("type"), str):
        raise SchemaError("not an object with a type")
    name = body.pop("type")
    if name not in known:
        raise SchemaError(f"unknown message type {name!r}")
    return _build(known[name], body, name)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """Returns the types of a message's fields.

    Cached, because the lookup takes most of the decoding time.
    """
    return typing.get_type_hints(cls)


def _build(cls: type, body: dict[str, Any], where: str) -> Any:
    hints = _hints(cls)
    if set(body) != set(hints):
        raise SchemaError(f"{where}: fields {sorted(body)} are not {sorted(hints)}")
    return cls(**{name: _check(hint, body[name], f"{where}.{name}") for name, hint in hints.items()})


def _check(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in args:
            return None
        (inner,) = (arg for arg in args if arg is not type(None))
        return _check(inner, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise SchemaError(f"{where}: not a list")
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_check(args[0], item, f"{where}[]") for item in value)
        if len(value) != len(args):
            raise SchemaError(f"{where}: {len(value)} items, not {len(args)}")
        return tuple(_check(arg, item, f"{where}[]") for arg, item in zip(args, value, strict=True))
    if origin is dict:
        if not isinstance(value, dict):
            raise SchemaError(f"{where}: not an object")
        return {key: _check(args[1], item, f"{where}[{key!r}]") for key, item in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, dict):
            raise SchemaError(f"{where}: not an object")
        return _build(hint, value, where)
    if hint is float and type(value) is int and abs(value) < 1 << 53:
        return float(value)
    if type(value) is not hint:
        raise SchemaError(f"{where}: {type(value).__name__}, not {hint.__name__}")
    if hint is int and abs(value) > MAX_INTEGER:
        raise SchemaError(f"{where}: an integer beyond {MAX_INTEGER}")
    if hint is str:  # Python accepts half a surrogate pair in a string; UTF-8 does not
        return value.encode("utf-8", "replace").decode()
    return value
