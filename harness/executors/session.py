"""What every command needs that judges: a device, its tools, workers on it, and a way to put it all away."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import DeviceError, ToolchainError
from harness.executors.tools import tools_for
from harness.project.paths import REFERENCES
from harness.system.interrupts import shielded, unwinding
from harness.system.memory import available_memory
from harness.system.processes import adopt_orphans
from harness.system.text import one_line

if TYPE_CHECKING:
    from harness.judge.policy import Surroundings
    from harness.judge.process.workers import Workers
    from harness.judge.timing.rivals import Baseline


@dataclass(frozen=True)
class Session:
    """An open session.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        surroundings: The machine.
        workers: Where candidates' workers come from.
        baseline: Where references run, on a GPU; None where speed is not measured.
        builders: Where workers come from that only build, and see no GPU.
    """

    device: str
    surroundings: Surroundings
    workers: Workers
    baseline: Baseline | None
    builders: Workers

    @property
    def environment(self) -> dict[str, str]:
        """What records say of the machine."""
        return self.surroundings.environment


def calibrated(session: Session, home: Path) -> Session:
    """The session with its GPU's ceilings, which are measured where nobody has; nothing on the CPU."""
    surroundings = session.surroundings
    if session.device == "cpu" or surroundings.ceilings is not None:
        return session
    import torch

    from harness.timing import ceilings

    print("measuring the GPU's ceilings (kept for later runs)", file=sys.stderr)
    try:
        found = ceilings.measure(torch.device(session.device))
        torch.cuda.empty_cache()
        ceilings.save(home, surroundings.environment, found)
    except (DeviceError, OSError) as error:
        print(f"warning: without a share of the speed of light: {one_line(str(error))}", file=sys.stderr)
        return session
    return replace(session, surroundings=replace(surroundings, ceilings=found))


@contextlib.contextmanager
def opened(wanted: str, home: Path, starts_ahead: bool = True, is_timed: bool = True) -> Iterator[Session]:
    """Make ready for judging on a device.

    What workers are forked of imports torch while this process does: it starts first.

    Args:
        wanted: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        home: ``HARNESS_HOME``.
        starts_ahead: Whether workers will be needed for sure.
        is_timed: Whether speed is measured, on a GPU.

    Raises:
        UsageError: It is no device.
        DeviceError: There is no such GPU.
        ToolchainError: What builds for the device is missing.
    """
    from harness.device import devices

    likely = devices.guess(wanted)
    try:
        tools = tools_for(likely, home)
    except ToolchainError:
        likely = str(devices.choose(wanted))  # a driver without a torch for it: not this device after all
        tools = tools_for(likely, home)
    adopt_orphans()  # of workers that end before what they have started
    with contextlib.ExitStack() as stack, unwinding():
        from harness.judge.process.zygote import Zygote

        zygote = stack.enter_context(contextlib.closing(Zygote()))
        if starts_ahead:
            with shielded():
                zygote.start_ahead()
        device = str(devices.choose(wanted))
        if device != likely:
            tools = tools_for(device, home)
        from harness.judge.policy import Surroundings
        from harness.judge.process.workers import Workers
        from harness.judge.timing.rivals import Baseline

        workers = Workers(device, tools.libraries, available_memory() // 2, zygote=zygote)
        stack.enter_context(contextlib.closing(workers))
        baseline = None
        if is_timed and device != "cpu":
            kept = {
                "TORCHINDUCTOR_CACHE_DIR": str(home / REFERENCES / "inductor"),
                "TRITON_CACHE_DIR": str(home / REFERENCES / "triton"),
            }
            rivals = Workers(device, tools.libraries, None, confined=False, environment=kept, zygote=zygote)
            stack.enter_context(contextlib.closing(rivals))
            baseline = Baseline(rivals)
            stack.callback(baseline.close)
        builders = Workers.that_build(device, tools.libraries, devices.capability(device), zygote)
        stack.enter_context(contextlib.closing(builders))
        surroundings = Surroundings.of_this_machine(home, tools.compiler, device)
        yield Session(device, surroundings, workers, baseline, builders)
