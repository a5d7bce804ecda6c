"""The messages between judge and worker, and their strict decoding.

Every message is a frozen dataclass; on the wire it is one JSON object with its class name under ``type``.
Decoding refuses unknown types, missing or extra fields and wrong field types: the worker runs untrusted code, so
whatever it sends is either one of these objects or a broken rule.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from dataclasses import dataclass
from typing import Any

from harness.records.kernels import CompiledKernel

#: Which instance ``Forward.aside`` calls.
SAME_INSTANCE, ANOTHER_INSTANCE = "same", "another"
#: No count, size or line is larger.
MAX_INTEGER = 1 << 64


class SchemaError(ValueError):
    """Bytes that are no message of this schema."""


@dataclass(frozen=True)
class Region:
    """A dense tensor in the arena.

    Attributes:
        offset: First byte, a multiple of 256.
        shape: Shape of the tensor.
        dtype: Name without prefix, as ``float32``.
        order: Its dimensions from the one with the largest stride to the one with the smallest; empty for row-major.
    """

    offset: int
    shape: tuple[int, ...]
    dtype: str
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Value:
    """An argument: exactly one of a tensor in the arena or a JSON encoding of a plain Python value."""

    region: Region | None
    plain: str | None


@dataclass(frozen=True)
class StateTensor:
    """A parameter or buffer of the candidate's instance.

    Attributes:
        name: Dotted name as in ``state_dict``.
        is_parameter: Whether it is a parameter (else a buffer).
        shape: Its shape.
        dtype: Its dtype.
        fill: The one value that all elements have, None when they differ.
    """

    name: str
    is_parameter: bool
    shape: tuple[int, ...]
    dtype: str
    fill: float | None


@dataclass(frozen=True)
class Report:
    """A fault that the emulator saw (see ``records.Finding``); a suspicion is one only if the result depends on it."""

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
    """Import the solution. ``cached`` maps build keys to libraries that the judge has kept.

    ``check`` names the architecture whose limits count where the emulator checks every access, and is else empty.
    ``refused`` has message and log of what a compiler has refused before, by build key.
    """

    solution: str
    cached: dict[str, str]
    check: str = ""
    refused: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Construct:
    """Make the instance for a case; the arena's descriptor comes with this message.

    With ``own_args`` the solution's own ``get_init_inputs`` is called, the case's constants put into its module where
    it has them. ``training`` has the modes that its modules are put into (see ``wire.state.modes_of``).
    """

    arena_bytes: int
    own_args: bool
    init_args: tuple[Value, ...]
    constants: str
    training: dict[str, bool]


@dataclass(frozen=True)
class Forward:
    """Copy the state in and call the instance, then copy its outputs out.

    Attributes:
        inputs: The arguments.
        state: Parameters and buffers by the candidate's names.
        outputs: Where the outputs go.
        buffers: The buffers to copy out afterwards, and where to.
        differentiate: Whether autograd records the call.
        thread_order: The order in which the emulator runs threads.
        order_seed: Seed of torch's generators, and of a random order of threads.
        frozen: What needs no gradient in this trial, by ``input_key`` or the candidate's parameter name.
        aside: Which instance is called on other values before the result is read: none (empty), ``SAME_INSTANCE``
            or ``ANOTHER_INSTANCE``.
        calls: How many times the instance is called; the outputs of the last call are copied out.
        aside_calls: How many times the instance of ``aside`` is called.
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
    """Differentiate the last outputs with these cotangents; results go to the regions of the leaves.

    Attributes:
        cotangents: One region per output.
        input_gradients: Position in the inputs, and region.
        state_gradients: Parameter name, and region.
        expanded: Whether each cotangent is the first element of its region, expanded to the region's shape (stride 0).
    """

    cotangents: tuple[Region, ...]
    input_gradients: tuple[tuple[int, Region], ...]
    state_gradients: tuple[tuple[str, Region], ...]
    expanded: bool = False


@dataclass(frozen=True)
class LoadReference:
    """Take the problem's own ``Model`` under these constants: this worker is the baseline, and trusted."""

    problem: str
    constants: str


@dataclass(frozen=True)
class Vary:
    """Run the reference in another way from now on; asked of the baseline, after ``Construct``.

    Each way has an instance of its own, which wants a ``Forward`` before anything else when it is new. What was
    compiled is kept until another problem or case is loaded.

    Attributes:
        name: Name of the way; one that is known already is taken up again.
        compile_mode: The mode of ``torch.compile``; empty where nothing is compiled.
        allows_tf32: Whether products and convolutions may use TF32.
        is_empty: Whether a call launches one kernel that does nothing, in place of the reference.
    """

    name: str
    compile_mode: str
    allows_tf32: bool
    is_empty: bool


@dataclass(frozen=True)
class TimeCalls:
    """Time one call on the inputs of the last ``Forward``; without ``backward`` a forward under ``no_grad``.

    Attributes:
        backward: What is differentiated.
        head_start_us: Microseconds by which launching the call may be ahead of it: it waits behind a kernel that
            spins so long.
        is_replayed: A CUDA graph of the call is replayed, captured at the first such command.
    """

    backward: Backward | None
    head_start_us: int
    is_replayed: bool


@dataclass(frozen=True)
class Weigh:
    """Say how much device memory one call holds at its peak; ``backward`` as in ``TimeCalls``."""

    backward: Backward | None


@dataclass(frozen=True)
class MapSlots:
    """Map the arena of ``Loop``'s slots; its descriptor comes with this message."""

    arena_bytes: int


@dataclass(frozen=True)
class DropSlots:
    """Unmap the arena of ``Loop``'s slots."""


@dataclass(frozen=True)
class Slot:
    """One call of a ``Loop``.

    Attributes:
        first: Whether its tensors lie in the first arena, else in the slots'.
        inputs: (position, region) of the arguments that are tensors; all others are those of the last ``Forward``.
        cotangents: What its outputs are differentiated with; none for a forward.
        results: Where its results go.
        seed: Seed of whatever it draws.
    """

    first: bool
    inputs: tuple[tuple[int, Region], ...]
    cotangents: tuple[Region, ...]
    results: tuple[Region, ...]
    seed: int


@dataclass(frozen=True)
class Loop:
    """Prepare one call for each slot, on the state of the last ``Forward``; ``Go`` makes them.

    Attributes:
        slots: The calls.
        leaves: What each call differentiates, in the order of its results: parameters' names, and ``input_key``s.
            Where there are none, a call is a forward under ``no_grad``, and its results are the outputs.
        store_only: Nothing is called, results' places are written all the same. That is asked of the baseline.
    """

    slots: tuple[Slot, ...]
    leaves: tuple[str, ...]
    store_only: bool


@dataclass(frozen=True)
class Go:
    """Make the calls of the last ``Loop``, without a pause."""


@dataclass(frozen=True)
class Trace:
    """Run forward as in the last ``Forward``, and backward where one is given; say what that and earlier calls ran."""

    backward: Backward | None


@dataclass(frozen=True)
class Compile:
    """Have nvcc compile the CUDA sources that the candidate has given to a loader so far; nothing of it runs."""

    arch: str


@dataclass(frozen=True)
class Inspect:
    """Say what the candidate has replaced, changed and left running in its process."""


@dataclass(frozen=True)
class Release:
    """Drop all instances, the arenas and unused device memory; what was compiled stays."""


# ----------------------------------------------------------------- worker to judge


@dataclass(frozen=True)
class Ready:
    """The worker has imported torch and waits for ``Load``.

    ``confined`` has every layer of its confinement, and why it is missing, empty where it holds. It is said before any
    candidate runs.
    """

    confined: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Building:
    """A compiler starts (``begin``) or has ended (``end``)."""

    event: str
    name: str


@dataclass(frozen=True)
class Loaded:
    """The solution is imported. ``built`` maps build keys to files in the worker's build folder."""

    built: dict[str, str]
    has_init_inputs: bool
    parameter_map: dict[str, str]


@dataclass(frozen=True)
class Constructed:
    """The instance exists; its state. ``built`` as in ``Loaded``, for solutions that build late."""

    state: tuple[StateTensor, ...]
    built: dict[str, str]


@dataclass(frozen=True)
class OutputTensor:
    """What the candidate returned at one position; ``fault`` says why it was not copied, or is empty."""

    shape: tuple[int, ...]
    dtype: str
    differentiable: bool
    fault: str


@dataclass(frozen=True)
class OutputPart:
    """One part of what a forward returned (see ``wire.structure``).

    Attributes:
        path: Where it is: ``output``, ``output[1]``, ``output.logits``.
        kind: ``tensor``, ``sequence``, ``dict`` or ``value``; else what it is, which nothing can be compared with.
        value: The length of a sequence, the keys of a dict, the ``repr`` of a plain value.
    """

    path: str
    kind: str
    value: str


@dataclass(frozen=True)
class Outputs:
    """The outputs, which lie in their regions where ``fault`` is empty everywhere; in the order of their parts.

    ``buffer_faults`` says of buffers, by name, why they were not copied.
    """

    structure: tuple[OutputPart, ...]
    tensors: tuple[OutputTensor, ...]
    buffer_faults: dict[str, str]
    reports: tuple[Report, ...]
    built: dict[str, str]


@dataclass(frozen=True)
class Gradients:
    """The gradients lie in their regions, but for ``missing`` (no gradient) and ``faults`` (wrong form)."""

    missing: tuple[str, ...]
    faults: dict[str, str]
    reports: tuple[Report, ...]
    built: dict[str, str]


@dataclass(frozen=True)
class Failed:
    """The candidate raised.

    ``kind`` is one of ``build``, ``unsupported``, ``load``, ``runtime``, ``memory``, ``no_gradient``. ``build_key`` is
    that of what a compiler has refused, and else empty.
    """

    kind: str
    stage: str
    message: str
    log: str
    reports: tuple[Report, ...]
    build_key: str = ""


@dataclass(frozen=True)
class Timed:
    """What the worker claims of a call.

    Attributes:
        milliseconds: What it took.
        behind_ms: From its end until the host had seen the whole device idle.
    """

    milliseconds: float
    behind_ms: float


@dataclass(frozen=True)
class Varied:
    """The way is in use.

    Attributes:
        was_known: Whether it was there already: compiled for an earlier candidate, or in use before.
        frames: How many functions ``torch.compile`` has compiled for it so far.
        graph_breaks: Why it had to leave compiled code, a sentence each.
    """

    was_known: bool
    frames: int
    graph_breaks: tuple[str, ...]


@dataclass(frozen=True)
class Weighed:
    """Bytes that a call held at its peak: parameters, results and scratch memory; None where that cannot be told."""

    peak_bytes: int | None


@dataclass(frozen=True)
class Mapped:
    """The slots' arena is mapped."""


@dataclass(frozen=True)
class Armed:
    """The calls of a ``Loop`` are prepared."""


@dataclass(frozen=True)
class Looped:
    """All calls of a ``Loop`` are done; ``fault`` says what was wrong with a result's form, or is empty."""

    fault: str


@dataclass(frozen=True)
class Launched:
    """What ran on the device: how often, whether it is from a library that the candidate built, for how long in all.

    ``device_ms`` is None on the emulator, whose times say nothing. ``is_copy`` marks a copy or fill by the driver,
    which is no kernel; ``bytes`` is what it moved in all, None for kernels and where the profiler does not say.
    ``aside`` counts those on another stream than the one that the call was made on.
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
    """What all judged calls of an instance did on the emulator.

    Attributes:
        forwards: How many forwards there were.
        threads: Threads of the candidate's own kernels.
        elements: Elements of the largest tensor that each of torch's operators was given, summed over those that
            compute something.
    """

    forwards: int
    threads: int
    elements: int


@dataclass(frozen=True)
class Traced:
    """What calls launched and which of torch's operators they ran.

    Attributes:
        seen: Whether kernels can be seen at all.
        forward: The kernels of a forward, in the order of their first launch.
        backward: Those of its backward.
        inference: Those of a forward without gradients, as it is timed; empty on the emulator.
        operators: Torch's heavy operators by direction, and how often each ran in one call at most.
        work: What all judged calls did; None on a GPU.
        refused: Of each build that failed so far, its first telling line.
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
    """What nvcc made of the candidate's CUDA sources.

    Attributes:
        kernels: What it compiled; none where there was nothing to do, or all failed.
        fault: Whose fault it is that something did not compile: ``source`` for the candidate's, ``machine`` for what is
            missing here; else empty.
        error: The compiler's first errors, or what is missing; empty where nothing failed.
        line: The solution's line of the first error, where it has one.
        kernel: The kernel that it is about, where that is known.
        log: All that the compiler printed about what failed.
        seconds: How long it ran.
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
    """What the candidate did to its process.

    Attributes:
        replaced: Names of functions that tell time, wait, compare or pass on, and are others now.
        flags: Settings of torch's that it left changed, a sentence each.
        threads: Names of Python threads that it left running.
    """

    replaced: tuple[str, ...]
    flags: tuple[str, ...]
    threads: tuple[str, ...]


@dataclass(frozen=True)
class Released:
    """Done."""


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
    """What ``Gradients`` calls the input at a position; no parameter's name has a colon."""
    return f"input:{position}"


def encode(message: Command | Reply) -> bytes:
    """The message as UTF-8 JSON."""
    body = {"type": type(message).__name__, **dataclasses.asdict(message)}
    return json.dumps(body, allow_nan=True).encode()


def decode(data: bytes, known: dict[str, type]) -> Any:
    """The message that ``data`` holds.

    Args:
        data: UTF-8 JSON.
        known: Message classes by name: ``COMMANDS`` or ``REPLIES``.

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
    """The types of a message's fields; finding them out takes longer than all the rest."""
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
    if hint is str:  # half a surrogate pair is a string to Python and to nobody else
        return value.encode("utf-8", "replace").decode()
    return value
