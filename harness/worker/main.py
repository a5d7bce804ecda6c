"""Runs the worker's loop: it receives a command, runs the candidate's part and sends a reply.

The worker runs untrusted code in its own process, so the judge does not trust it. Nothing that it
says decides a verdict.
"""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils import cpp_extension

from harness.aten.torch_state import set_tf32
from harness.project import problems
from harness.wire import channel
from harness.wire.arena import Arena, region_bytes
from harness.wire.commands import (
    ANOTHER_INSTANCE,
    COMMANDS,
    NON_LEAF,
    Backward,
    Compile,
    Construct,
    Describe,
    DropSlots,
    Forward,
    Go,
    Inspect,
    Load,
    LoadReference,
    Loop,
    MapSlots,
    Rehearse,
    Release,
    Repeat,
    TimeCalls,
    Trace,
    Vary,
    Weigh,
)
from harness.wire.encoding import decode, encode
from harness.wire.replies import (
    Armed,
    Building,
    Constructed,
    Failed,
    Gradients,
    Inspected,
    Loaded,
    Looped,
    Mapped,
    Outputs,
    Ready,
    Rehearsed,
    Released,
    Reply,
    Report,
    Timed,
    Traced,
    Varied,
    Weighed,
)
from harness.wire.state import describe_state, set_modes
from harness.wire.tensors import Region, Value, input_key
from harness.wire.values import decode_plain
from harness.worker import calling, failures, limits, rehearsal, tracing
from harness.worker.candidate import Instance
from harness.worker.construction import constructed
from harness.worker.inspection import Inspection
from harness.worker.platforms import Loader, platform_for
from harness.worker.results import store, stored
from harness.worker.solution_module import copies_usual_args, import_solution, own_init_args, parameter_map
from harness.worker.tally import BACKWARD, FORWARD, Tally
from harness.worker.variants import Variants, forget

MAX_MESSAGE_CHARACTERS = 10_000
MAX_LOG_CHARACTERS = 500_000
#: Reserved address space, never written, for describing a candidate that ran out of memory.
RESERVE_BYTES = 32 << 20
_STAGES = {
    Load: "import",
    LoadReference: "import",
    Construct: "ModelNew",
    Describe: "import",
    Rehearse: "ModelNew",
    Vary: "baseline",
    Forward: "forward",
    Repeat: "forward",
    Backward: "backward",
    TimeCalls: "timed calls",
    Weigh: "timed calls",
    MapSlots: "timed calls",
    DropSlots: "timed calls",
    Loop: "timed calls",
    Go: "timed calls",
    Trace: "traced calls",
    Compile: "compilation",
    Inspect: "inspection",
    Release: "release",
}


class Worker:
    """Holds the channel, the platform and the candidate.

    Args:
        ours: The worker's end of the socket pair.
        settings: The settings that the judge sent at the start.
        confined: The layers of confinement, and why each is missing (empty if it holds).
    """

    def __init__(self, ours: socket.socket, settings: dict[str, Any], confined: Sequence[tuple[str, str]]):
        self._confined = tuple(confined)
        self._channel = ours
        self._build_folder = Path(settings["build_folder"])
        self.platform = platform_for(settings["device"], settings["libraries"], settings["builds_for"])
        self._loader: Loader | None = None
        self._announced: set[str] = set()
        self._solution = ""
        self._module: ModuleType | None = None
        self._arena: Arena | None = None
        self._slots: Arena | None = None
        self._instance: Instance | None = None
        self._reference: tuple[str, str] | None = None
        self._init_args: tuple[Value, ...] = ()
        self._variants = Variants()
        self._instances: dict[str, Instance] = {}
        self._make: Callable[[], torch.nn.Module] | None = None
        self._reserve: mmap.mmap | None = mmap.mmap(-1, RESERVE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._inspection = Inspection()
        self._tally = Tally()
        self._refused: list[str] = []

    def serve(self) -> None:
        """Answers commands until the judge closes the channel."""
        self._send(Ready(self._confined))
        while True:
            try:
                data, descriptor = channel.receive(self._channel)
            except channel.ChannelClosed:
                return
            command = decode(data, COMMANDS)
            self._send(self._answer(command, descriptor))

    def _answer(self, command: Any, descriptor: int | None) -> Reply:
        stage = _STAGES[type(command)]
        try:
            if isinstance(command, Load):
                return self._load(command)
            if isinstance(command, Construct):
                assert descriptor is not None
                return self._construct(command, descriptor)
            if isinstance(command, Forward):
                return self._forward(command)
            if isinstance(command, Repeat):
                return self._repeat()
            if isinstance(command, Backward):
                return self._backward(command)
            if isinstance(command, Vary):
                return self._vary(command)
            if isinstance(command, TimeCalls):
                return self._time(command)
            if isinstance(command, Weigh):
                return self._weigh(command)
            if isinstance(command, MapSlots):
                assert descriptor is not None
                return self._map_slots(command, descriptor)
            if isinstance(command, DropSlots):
                return self._drop_slots()
            if isinstance(command, Loop):
                return self._arm(command)
            if isinstance(command, Go):
                return self._go()
            if isinstance(command, Trace):
                return self._trace(command)
            if isinstance(command, Compile):
                return self.platform.compiled(command.arch)
            if isinstance(command, Inspect):
                return Inspected(self._inspection.replaced, self._inspection.flags, self._inspection.threads)
            if isinstance(command, LoadReference):
                return self._load_reference(command)
            if isinstance(command, Describe):
                return rehearsal.described(command)
            if isinstance(command, Rehearse):
                return self._rehearse(command)
            return self._release()
        except BaseException as error:  # the candidate's boundary: any exception becomes a reply
            self._reserve = None
            kind = failures.kind_of(error, "load" if stage in ("import", "ModelNew") else "runtime")
            message = failures.describe(error, self._solution)[:MAX_MESSAGE_CHARACTERS]
            log, key = failures.build_log(error)[:MAX_LOG_CHARACTERS], failures.build_key(error)
            return Failed(kind, stage=stage, message=message, log=log, reports=self._reports(), build_key=key)

    def _load(self, command: Load) -> Loaded:
        self._solution = command.solution
        self._loader = self.platform.loader(
            Path(command.solution),
            {key: Path(path) for key, path in command.cached.items()},
            self._build_folder,
            lambda event, name: self._send(Building(event, name, self._built(), self._newly_refused())),
            check=command.check,
            exhaustive=command.exhaustive,
            compat=command.compat,
            refused=command.refused,
        )
        # A solution that imports torch's loader gets the harness's loader instead.
        for name in ("load_inline", "load"):
            load = getattr(self._loader, name)
            setattr(cpp_extension, name, failures.noted(load, command.solution, self._refused))
        with self._running():
            self._module = import_solution(command.solution)
        self._inspection.keep_flags()
        return Loaded(self._built(), hasattr(self._module, "get_init_inputs"), parameter_map(self._module))

    def _rehearse(self, command: Rehearse) -> Rehearsed:
        loader = self._loader
        assert self._module is not None
        assert loader is not None
        rehearsal.rehearse(self._module, command, lambda: bool(loader.built or loader.refused))
        return Rehearsed()

    def _construct(self, command: Construct, descriptor: int) -> Constructed:
        module = self._module
        assert module is not None
        set_tf32(command.tf32)
        self._forget_instances()
        if command.init_args != self._init_args or any(value.region for value in command.init_args):
            self._variants = Variants()  # a cached model keeps the arguments it was made with
            forget()
        self._init_args = command.init_args
        self._arena = arena = self.platform.arena(descriptor, command.arena_bytes)
        with self._running():
            if command.own_args and not copies_usual_args(module, command.usual_args):
                args = own_init_args(module, decode_plain(command.constants))
            else:
                args = [
                    arena.tensor(value.region).clone() if value.region else decode_plain(value.plain or "null")
                    for value in command.init_args
                ]

            def make() -> torch.nn.Module:
                model = constructed(module, args, self.platform.device, self._reference is not None)
                set_modes(model, command.training)
                return model

            model = make()
            self.platform.synchronize()
        self._inspection.keep_flags()
        self._instance, self._make = Instance(model, arena), make
        self._tally = Tally()
        return Constructed(tuple(describe_state(model)), self._built())

    def _forward(self, command: Forward) -> Outputs:
        assert self._instance is not None
        assert self._arena is not None
        assert self._make is not None
        self.platform.set_thread_order(command.thread_order, command.order_seed)
        self.platform.set_fill(command.fill)
        older = self._succeeded() if command.aside == ANOTHER_INSTANCE else None
        self._instance.prepare(command)
        self.platform.know(self._instance.given())
        self.platform.poison([region_bytes(region.shape, region.dtype) for region in command.outputs])
        with self._running():
            self._instance.enter()
            if older is not None:
                self._instance.call_aside(older, self._watched, calls=1)
                older = None
            for call in range(command.calls):
                with self._instance.given_state(call), self._watched(FORWARD, copies=NON_LEAF in command.ways):
                    result = self._instance.call()
            if command.aside:
                self._inspection.restore_flags()
                aside = self._make() if command.aside == ANOTHER_INSTANCE else self._instance.model
                self._instance.call_aside(aside, self._watched, calls=command.aside_calls)
            self.platform.synchronize()
        self._inspection.restore_flags(command.order_seed)
        outputs = self._stored(result, command.outputs)
        faults = self._instance.store_buffers(command.buffers)
        self.platform.synchronize()
        return replace(outputs, buffer_faults=faults, reports=self._reports(), built=self._built())

    def _succeeded(self) -> torch.nn.Module:
        """Makes a second instance, which is judged from now on, and returns the first one's model."""
        assert self._instance is not None
        assert self._arena is not None
        assert self._make is not None
        first = self._instance
        with self._running():
            model = self._make()
            self.platform.synchronize()
        self._inspection.restore_flags()
        self._instance = Instance(model, self._arena, like=first)
        return first.model

    def _stored(self, result: Any, regions: Sequence[Region]) -> Outputs:
        assert self._instance is not None
        assert self._arena is not None
        outputs = stored(result, self._arena, regions, self._instance.kept, self.platform.device)
        return replace(outputs, written=self._instance.written)

    def _repeat(self) -> Outputs:
        assert self._instance is not None
        with self._running():
            with self._watched(FORWARD):
                result = self._instance.call_anew()
            self.platform.synchronize()
        self._inspection.restore_flags()
        outputs = self._stored(result, self._instance.output_regions)
        self.platform.synchronize()
        return replace(outputs, reports=self._reports(), built=self._built())

    def _backward(self, command: Backward) -> Gradients:
        assert self._instance is not None
        assert self._arena is not None
        self.platform.know({"cotangent": self._instance.cotangents(command)}, more=True)
        with self._running():
            if command.twice:  # two calls, each counted by itself
                with self._watched(BACKWARD):
                    self._instance.differentiate_ahead(command)
            with self._watched(BACKWARD, copies=command.twice or bool(command.gaps)):
                gradients = self._instance.gradients(command)
            self.platform.synchronize()
        self._inspection.restore_flags()
        wanted = {input_key(position): region for position, region in command.input_gradients}
        wanted.update(command.state_gradients)
        missing, faults = [], dict(self._instance.changed_gradients)
        for name, region in wanted.items():
            gradient = gradients.get(name)
            if gradient is None and command.alone is not None:
                self._arena.tensor(region).zero_()  # the output does not reach it
            elif gradient is None:
                missing.append(name)
            elif fault := store(self._arena, region, gradient):
                faults[name] = f"the gradient has {fault}"
        self.platform.synchronize()
        unasked = (*calling.unasked(gradients, wanted), *self._instance.unfrozen)
        return Gradients(tuple(missing), faults, self._reports(), self._built(), unasked)

    def _vary(self, command: Vary) -> Varied:
        """Switches to a variant.

        Its model may serve several candidates; each candidate gets its own instance.
        """
        assert self._make is not None
        assert self._arena is not None
        if self._instance is not None:
            self._instance.forget_outputs()
        model, is_known = self._variants.take(command, self._make)
        if command.name not in self._instances:
            self._instances[command.name] = Instance(model, self._arena)
        self._instance = self._instances[command.name]
        return self._variants.told(is_known)

    def _time(self, command: TimeCalls) -> Timed:
        assert self._instance is not None
        with self._running():
            return Timed(*self._instance.timed(command, self.platform.device))

    def _weigh(self, command: Weigh) -> Weighed:
        assert self._instance is not None
        with self._running():
            return Weighed(self.platform.peak_bytes(self._instance.step(command.backward), self._instance.model))

    def _map_slots(self, command: MapSlots, descriptor: int) -> Mapped:
        self._drop_slots()
        self._slots = self.platform.slots(descriptor, command.arena_bytes)
        return Mapped()

    def _drop_slots(self) -> Released:
        for instance in (self._instance, *self._instances.values()):
            if instance is not None:
                instance.disarm()
        self._slots = None
        self.platform.release_slots()
        return Released()

    def _arm(self, command: Loop) -> Armed:
        assert self._instance is not None
        assert self._slots is not None
        self._instance.arm(command, self._slots)
        return Armed()

    def _go(self) -> Looped:
        assert self._instance is not None
        with self._running():
            fault = self._instance.loop()
            self.platform.synchronize()
        return Looped(fault)

    def _trace(self, command: Trace) -> Traced:
        assert self._instance is not None
        with self._running():
            traced = tracing.traced(self._instance, self.platform, self._tally, command.backward)
        self._inspection.restore_flags()
        return replace(traced, refused=tuple(self._refused))

    def _watched(self, direction: str, *, copies: bool = False) -> contextlib.AbstractContextManager[None]:
        """Returns the context of one judged call, whose work counts unless the worker copies tensors there, too."""
        return contextlib.nullcontext() if copies else self.platform.watched(self._tally, direction)

    def _load_reference(self, command: LoadReference) -> Loaded:
        """Loads the problem's own model as the candidate of this worker, the baseline, which the judge trusts."""
        reference = (Path(command.problem).read_text(encoding="utf-8"), command.constants)
        if reference != self._reference:
            self._forget_instances()
            self._variants = Variants()
            forget()
        problem = problems.read_problem(Path(command.problem))
        self._solution, self._reference = command.problem, reference
        module = ModuleType("reference")
        vars(module)["ModelNew"] = problems.load(problem, decode_plain(command.constants)).model
        self._module = module
        return Loaded({}, False, {})

    def _release(self) -> Released:
        """Drops the instance and everything it holds on the device, and unmaps the arena."""
        self._forget_instances()
        self.platform.release()
        return Released()

    def _forget_instances(self) -> None:
        """Drops everything that refers to the arenas."""
        self._variants.leave()
        self._instances.clear()
        self._instance = None
        self._make = None
        self._arena = None
        self._slots = None

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """Returns the context for foreign code: the candidate's, or the reference in a variant."""
        with self._variants.flags() if self._reference is not None else self.platform.running():
            yield

    def _reports(self) -> tuple[Report, ...]:
        return tuple(
            Report(
                str(report["kind"]),
                kernel=report.get("kernel") or None,
                line=report.get("line") or None,
                message=str(report.get("message", "")),
                remedy=str(report.get("remedy", "")),
                accesses=json.dumps(report.get("accesses", [])),
                is_suspicion=bool(report.get("is_suspicion")),
            )
            for report in self.platform.take_reports()
        )

    def _built(self) -> dict[str, str]:
        """Returns the builds since the last reply: build key to file name in the build folder."""
        if self._loader is None:
            return {}
        fresh = {key: path.name for key, path in self._loader.built.items() if key not in self._announced}
        self._announced.update(fresh)
        return fresh

    def _newly_refused(self) -> dict[str, tuple[str, str]]:
        """Returns the builds that a compiler has refused since the last call."""
        assert self._loader is not None
        fresh = {key: told for key, told in self._loader.refused.items() if key not in self._announced}
        self._announced.update(fresh)
        cut = MAX_MESSAGE_CHARACTERS, MAX_LOG_CHARACTERS
        return {key: (message[: cut[0]], log[: cut[1]]) for key, (message, log) in fresh.items()}

    def _send(self, reply: Reply) -> None:
        channel.send(self._channel, encode(reply))


def main(ours: socket.socket, settings: dict[str, Any], confined: Sequence[tuple[str, str]]) -> int:
    """Runs a worker on its end of the channel.

    Args:
        ours: The worker's end of the socket pair.
        settings: The settings that the judge sent.
        confined: The layers of confinement, and why each is missing.

    Returns:
        The exit code.
    """
    # Imported modules stay alive. Without this, every garbage collection would scan all of them.
    gc.freeze()
    worker = Worker(ours, settings, confined)
    torch.manual_seed(0)
    if settings["memory_bytes"] is not None and worker.platform.limits_memory:
        limits.limit_memory(settings["memory_bytes"])
    with contextlib.suppress(channel.ChannelClosed):
        worker.serve()
    return 0
