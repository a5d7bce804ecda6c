"""Checks what a machine has for judging, and runs a kernel on each device to prove it.

``host_checks`` and ``gpu_checks`` have a function for each requirement, which returns a
``MachineCheck`` with a remedy. ``examine`` calls them and decides by device what has to be there.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.doctor.checks import MachineCheck, NeededFor, line_of
from harness.doctor.gpu_checks import check_ceilings, check_driver, check_gpus, check_ncu, check_nvcc, check_nvml
from harness.doctor.host_checks import (
    check_compiler,
    check_confinement,
    check_disk,
    check_headers,
    check_memory,
    check_ninja,
    check_package,
    check_python,
    check_temporary,
    check_torch,
)
from harness.doctor.self_tests import SELF_TEST_LIMIT_S, run_probe
from harness.errors import DeviceError, ToolchainError
from harness.system.scratch import scratch_folder


@dataclass(frozen=True)
class Diagnosis:
    """All checks for a device.

    Attributes:
        device: ``cpu`` or ``cuda:N``.
        checks: The checks in the order of printing.
    """

    device: str
    checks: tuple[MachineCheck, ...]

    @property
    def ok(self) -> bool:
        """True if the device has everything that judging needs."""
        return all(check.ok is not False for check in self.checks)


def examine(wanted: str, home: Path) -> Diagnosis:
    """Runs all checks and self-tests.

    Args:
        wanted: The device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        home: ``HARNESS_HOME``.

    Raises:
        UsageError: The device is none of these.
    """
    torch = check_torch()
    device, refusal = _choose(wanted) if torch.ok else (("cpu" if wanted == "auto" else wanted), "torch is missing")
    torch_cuda = _torch_cuda() if torch.ok else None
    checks = [check_python(), torch, check_driver(torch_cuda)]
    checks += check_gpus(device, refusal) if torch.ok else []
    checks += check_ceilings(device, checks, home)
    checks += [check_nvcc(torch_cuda), check_compiler(), check_headers(), check_ninja()]
    checks += [check_package("cuda-bindings", "cuda.bindings.driver"), check_package("numpy", "numpy")]
    checks += [check_nvml(), check_ncu()]
    checks += [check_memory(), check_disk(home), check_temporary()]
    checks += [check_confinement(), check_emulator(checks, home)]
    if device.startswith("cuda"):
        checks += check_gpu_work(device, checks)
    kind = "cpu" if device == "cpu" else "cuda"
    return Diagnosis(device, tuple(_for_device(check, kind) for check in checks))


def _for_device(check: MachineCheck, kind: str) -> MachineCheck:
    """Returns the check, without a failure if the device does not need its subject."""
    if check.ok is False and check.needed_for not in (kind, "both"):
        return dataclasses.replace(check, ok=None)
    return check


def _choose(wanted: str) -> tuple[str, str]:
    """Returns the chosen device, and why torch cannot use it (empty if it can)."""
    from harness.device import devices

    with warnings.catch_warnings(record=True) as told:  # torch explains here what is wrong with a driver
        warnings.simplefilter("always")
        try:
            device = devices.choose(wanted)
            return str(device), "" if device.type == "cuda" else _reasons(told)
        except DeviceError as error:
            return wanted, "; ".join(filter(None, [str(error), _reasons(told)]))


def _reasons(told: Sequence[warnings.WarningMessage]) -> str:
    return line_of("; ".join(str(warning.message) for warning in told))


def _torch_cuda() -> str | None:
    import torch

    return torch.version.cuda


def check_emulator(checks: Sequence[MachineCheck], home: Path) -> MachineCheck:
    """Builds the emulator's runtime in ``HARNESS_HOME`` and runs a kernel on it.

    Args:
        checks: The earlier checks. If one that the test needs failed, the test does not run.
        home: ``HARNESS_HOME``.
    """
    name = "emulator self-test"
    if lacking := _lacking(checks, "torch", "C++ compiler", "HARNESS_HOME", "TMPDIR"):
        return _not_run(name, lacking, "cpu")
    from harness.emulator.toolchain import build_runtime

    try:
        libraries = build_runtime(home / "emulator")
    except (ToolchainError, OSError) as error:
        return MachineCheck(name, False, "the runtime cannot be built", line_of(str(error)), "cpu")
    paths = {"core": str(libraries.core), "torch": str(libraries.torch)}
    return self_test(name, "kernel", "cpu", paths)


def check_gpu_work(device: str, checks: Sequence[MachineCheck]) -> list[MachineCheck]:
    """Builds and runs a kernel on a GPU, and shares GPU memory between mappings.

    Args:
        device: ``cuda:N``.
        checks: The same as for ``check_emulator``.
    """
    gpus = [check.name for check in checks if check.name in ("GPU", device.replace("cuda:", "GPU "))]
    needs = {
        ("GPU self-test", "kernel"): ("nvcc", "C++ compiler", "ninja"),
        ("exchange self-test", "exchange"): ("cuda-bindings", "numpy"),
    }
    results = []
    for (name, probe), tools in needs.items():
        lacking = _lacking(checks, "torch", *gpus, *tools)
        results.append(_not_run(name, lacking, "cuda") if lacking else self_test(name, probe, device, {}))
    return results


def _lacking(checks: Sequence[MachineCheck], *names: str) -> list[str]:
    return [check.name for check in checks if check.name in names and not check.ok]


def _not_run(name: str, lacking: Sequence[str], needed_for: NeededFor) -> MachineCheck:
    return MachineCheck(
        name, False, f"not run: needs {', '.join(lacking)}", "fix that first, then run this again", needed_for
    )


def self_test(
    name: str, probe: str, device: str, libraries: Mapping[str, str], limit_s: float = SELF_TEST_LIMIT_S
) -> MachineCheck:
    """Runs a probe in another process, and cleans up all that it starts or writes.

    Args:
        name: Name of the check.
        probe: ``kernel`` or ``exchange``.
        device: ``cpu`` or ``cuda:N``.
        libraries: Runtime libraries of the emulator by name; empty for a GPU.
        limit_s: Seconds that the probe may take.
    """
    needed_for: NeededFor = "cpu" if device == "cpu" else "cuda"
    remedy = "try `CXX=clang++`" if device == "cpu" else "look at `nvidia-smi` and `dmesg | tail`"
    with scratch_folder("harness-doctor-") as folder:
        settings = {"probe": probe, "device": device, "libraries": dict(libraries), "folder": str(folder)}
        failure = run_probe(settings | {"parent": os.getpid()}, folder, limit_s)
    if failure:
        return MachineCheck(name, False, failure, f"{remedy}; if that does not help, report a bug", needed_for)
    did = (
        "shared memory was written and read back" if probe == "exchange" else "built a kernel and got the right result"
    )
    return MachineCheck(name, True, did, "", needed_for)
