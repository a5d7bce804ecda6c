"""Sessions: a device with its tools and its sources of workers, opened and closed together."""

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
from harness.system.scratch import check_temporary_folder
from harness.system.text import one_line

if TYPE_CHECKING:
    from harness.judge.policy import Surroundings
    from harness.judge.process.workers import Workers
    from harness.judge.process.zygote import Zygote
    from harness.judge.timing.rivals import Baseline


@dataclass(frozen=True)
class Session:
    """An open session on a device.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        surroundings: The machine's description.
        workers: The source of candidates' workers.
        baseline: The trusted worker that runs the baselines; None without timing or on the CPU.
        builders: The source of workers that only build and see no GPU.
    """

    device: str
    surroundings: Surroundings
    workers: Workers
    baseline: Baseline | None
    builders: Workers

    @property
    def environment(self) -> dict[str, str]:
        """The machine's description for the records."""
        return self.surroundings.environment


def calibrated(session: Session, home: Path) -> Session:
    """Returns the session with its GPU's ceilings; measures them if no earlier run did.

    On the CPU, or if the measurement fails, ``calibrated`` returns the session unchanged.
    """
    surroundings = session.surroundings
    if session.device == "cpu" or surroundings.ceilings is not None:
        return session
    import torch

    from harness.timing import ceilings

    print("measuring the GPU's peak rates (kept for later runs)", file=sys.stderr)
    try:
        found = ceilings.measure(torch.device(session.device))
        torch.cuda.empty_cache()
        ceilings.save(home, surroundings.environment, found)
    except (DeviceError, OSError) as error:
        print(f"warning: speed of light is unknown: {one_line(str(error))}", file=sys.stderr)
        return session
    return replace(session, surroundings=replace(surroundings, ceilings=found))


@contextlib.contextmanager
def opened(wanted: str, home: Path, zygote: Zygote, is_timed: bool = True) -> Iterator[Session]:
    """Opens a session on a device for the block.

    Args:
        wanted: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        home: ``HARNESS_HOME``.
        zygote: The process from which all workers are forked. The session ends it.
        is_timed: Whether to open the baselines' worker, for timing on a GPU.

    Raises:
        UsageError: ``wanted`` means no device.
        DeviceError: There is no such GPU.
        ToolchainError: The device's compiler or a package is missing.
        HarnessError: The temporary folder is of no use.
    """
    from harness.device import devices

    likely = devices.guess(wanted)
    check_temporary_folder()
    try:
        tools = tools_for(likely, home)
    except ToolchainError:
        likely = str(devices.choose(wanted))  # a driver is present, but torch cannot use the GPU
        tools = tools_for(likely, home)
    adopt_orphans()  # processes that outlive the worker that started them
    with contextlib.ExitStack() as stack, unwinding():
        stack.enter_context(contextlib.closing(zygote))
        with shielded():
            zygote.start_ahead()
        device = str(devices.choose(wanted))
        if device != likely:
            tools = tools_for(device, home)
        from harness.judge.policy import Surroundings
        from harness.judge.process.workers import Workers
        from harness.judge.timing.rivals import Baseline

        workers = Workers(device, tools.libraries, memory_bytes=available_memory() // 2, zygote=zygote)
        stack.enter_context(contextlib.closing(workers))
        baseline = None
        if is_timed and device != "cpu":
            kept = {
                "TORCHINDUCTOR_CACHE_DIR": str(home / REFERENCES / "inductor"),
                "TRITON_CACHE_DIR": str(home / REFERENCES / "triton"),
            }
            rivals = Workers(
                device, tools.libraries, memory_bytes=None, confined=False, environment=kept, zygote=zygote
            )
            stack.enter_context(contextlib.closing(rivals))
            baseline = Baseline(rivals)
            stack.callback(baseline.close)
        builders = Workers.that_build(device, tools.libraries, devices.capability(device), zygote)
        stack.enter_context(contextlib.closing(builders))
        surroundings = Surroundings.of_this_machine(home, tools.compiler, device)
        yield Session(device, surroundings, workers, baseline, builders)
