"""The commands that the judge sends to a worker.

Every command is a frozen dataclass; ``encoding`` turns it into JSON and back.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass

from harness.wire.tensors import Region, Value

#: The instance that ``Forward.aside`` names.
SAME_INSTANCE, ANOTHER_INSTANCE = "same", "another"
#: The ways of a call that ``Forward.ways`` names: inputs are the results of other operators; the
#: modules are in evaluation mode; within ``torch.inference_mode()``; the instance is a deep copy; in
#: a batch of twice as many samples, of which the outputs keep the second half; the instance has been
#: in the other mode, training or evaluation, and is back.
NON_LEAF, EVALUATION, INFERENCE, DEEP_COPY, LARGER_BATCH = "non-leaf", "eval", "inference", "deep copy", "larger batch"
RETURNED = "returned"


@dataclass(frozen=True)
class Load:
    """Asks the worker to import the solution.

    Attributes:
        solution: The path of the solution file.
        cached: The libraries that the judge has kept, by build key.
        check: The architecture whose limits count if the emulator checks every access; else empty.
        refused: The message and the log of each build that a compiler has already refused, by build
            key.
        compat: Whether code for an older torch may build.
        exhaustive: Whether checked launches run in all orders of what synchronises threads.
    """

    solution: str
    cached: dict[str, str]
    check: str = ""
    refused: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    compat: bool = False
    exhaustive: bool = False


@dataclass(frozen=True)
class Construct:
    """Asks the worker to create the instance for a case.

    The arena's descriptor comes with this message.

    If ``own_args`` is set, the worker calls the solution's own ``get_init_inputs``. Before that it
    sets the case's constants in the solution's module, for those names that the module defines.
    ``usual_args`` is what the problem's function returns without the case's constants, encoded. If
    the solution's returns the same there, it is a copy of it, and ``init_args`` count.
    ``training`` gives the training modes of the modules (see ``wire.state.modes_of``). ``tf32`` is
    written to torch's flags first: ``allow``, ``forbid``, or empty to leave them.
    """

    arena_bytes: int
    own_args: bool
    init_args: tuple[Value, ...]
    constants: str
    training: dict[str, bool]
    tf32: str = ""
    usual_args: str = ""


@dataclass(frozen=True)
class Describe:
    """Asks what a problem passes to a model: the arguments of its constructor and of its forward.

    Only a worker that loads no candidate receives this message. Its process then ends.
    """

    problem: str
    constants: str


@dataclass(frozen=True)
class Rehearse:
    """Asks a builder to make the candidate's instance on tensors without values, so that it builds.

    If the candidate has built nothing so far, the worker also calls the instance once. ``own_args``
    and ``constants`` are as in ``Construct``. The region of a tensor gives its shape and dtype only.
    """

    own_args: bool
    init_args: tuple[Value, ...]
    constants: str
    inputs: tuple[Value, ...]


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
        fill: Number of the pattern that fills new memory.
        frozen: The tensors that need no gradient in this trial, by ``input_key`` or the candidate's
            parameter name.
        aside: The instance that the worker calls on other values before it reads the result:
            ``SAME_INSTANCE``, ``ANOTHER_INSTANCE``, or empty for none. The second call of the same
            instance has its backward, too. With ``ANOTHER_INSTANCE`` the worker makes a second one,
            which is judged from now on. The first one, with its last parameters, runs before it, and a
            third one after it.
        calls: The number of calls of the instance. The worker copies out the outputs of the last
            one.
        aside_calls: The number of calls of the instance that ``aside`` names.
        ways: The ways in which the worker calls the instance.
        reorders: Whether elements of the inputs may change places before calls in a row.
        others: The arguments of the calls that ``aside`` asks for: another draw.
    """

    inputs: tuple[Value, ...]
    state: tuple[tuple[str, Region], ...]
    outputs: tuple[Region, ...]
    buffers: tuple[tuple[str, Region], ...]
    differentiate: bool
    thread_order: str
    order_seed: int
    fill: int = 0
    frozen: tuple[str, ...] = ()
    aside: str = ""
    calls: int = 1
    aside_calls: int = 1
    ways: tuple[str, ...] = ()
    reorders: bool = True
    others: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Repeat:
    """Asks the worker to run the last forward again, after a backward, and to copy its outputs out again."""


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
        twice: Whether the graph is differentiated twice. The second time the gradients go into the
            leaves' ``.grad``, on top of the first ones. The worker copies half of each sum.
        gaps: The dimensions along which each cotangent has gaps in memory (see
            ``wire.variations.with_gaps``).
        alone: The position of the only output that has a cotangent; None if all have one. A leaf
            that this output does not reach then has a gradient of zeros.
    """

    cotangents: tuple[Region, ...]
    input_gradients: tuple[tuple[int, Region], ...]
    state_gradients: tuple[tuple[str, Region], ...]
    expanded: bool = False
    twice: bool = False
    gaps: tuple[int, ...] = ()
    alone: int | None = None


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
    """Asks the worker to unmap the arena of ``Loop``'s slots, and to free what calls left."""


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


Command = (
    Load
    | LoadReference
    | Construct
    | Describe
    | Rehearse
    | Vary
    | Forward
    | Repeat
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


COMMANDS: dict[str, type] = {cls.__name__: cls for cls in typing.get_args(Command)}
