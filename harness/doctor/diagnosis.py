"""Checks what a machine has for judging, and runs a kernel on each device to prove it.

Each function checks one thing and returns a ``MachineCheck`` with a remedy. At the end, ``examine``
decides by device whether a missing thing matters.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness import package
from harness.compilation.nvcc import INSTALL_NVCC, cuda_home, nvcc_version
from harness.device.devices import driver_version
from harness.doctor.self_tests import run_probe
from harness.emulator.compiler import find_compiler, python_include
from harness.errors import DeviceError, ToolchainError, UsageError
from harness.judge.process.confining import readable_places
from harness.system.memory import available_memory
from harness.system.scratch import scratch_folder

if TYPE_CHECKING:
    from harness.timing.ceilings import Ceilings

NeededFor = Literal["cpu", "cuda", "both"]

#: Seconds that a self-test may take, with its build.
SELF_TEST_LIMIT_S = 120.0
_TOOL_LIMIT_S = 20.0
#: The header of half precision needs one package more than other headers.
_KERNEL = "#include <cuda_fp16.h>\n__global__ void kernel(__half* x) { x[0] = __float2half(1.f); }\n"
_OLDEST_PYTHON = (3, 11)
_OLDEST_TORCH = (2, 11)
#: g++ 12 takes 1.4 GiB to read torch/extension.h of torch 2.13.
_LEAST_MEMORY_BYTES = 3 << 29
_LEAST_DISK_BYTES = 1 << 28


@dataclass(frozen=True)
class MachineCheck:
    """The result of one check.

    Attributes:
        name: Name of the thing.
        ok: Whether it is there and works. None means that it does not, and the chosen device does
            not need it.
        found: What the check found: a version, a path, a size, or an error.
        remedy: How to get it; empty if nothing is wrong.
        needed_for: Devices that need it.
    """

    name: str
    ok: bool | None
    found: str
    remedy: str
    needed_for: NeededFor


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
        """Whether the device can judge, that is, has everything that it needs."""
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
    checks += [check_memory(), check_disk(home)]
    checks += [check_confinement(), check_emulator(checks, home)]
    if device.startswith("cuda"):
        checks += check_gpu_work(device, checks)
    kind = "cpu" if device == "cpu" else "cuda"
    return Diagnosis(device, tuple(_for_device(check, kind) for check in checks))


def _for_device(check: MachineCheck, kind: str) -> MachineCheck:
    """Returns the check without a failure if the device does not need the thing."""
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
    return _one_line("; ".join(str(warning.message) for warning in told))


def check_python() -> MachineCheck:
    """Checks this Python's version."""
    good = sys.version_info >= _OLDEST_PYTHON
    remedy = "" if good else "`apt-get install python3.11 python3.11-venv python3.11-dev`, then a new environment"
    return MachineCheck("Python", good, f"{platform.python_version()}, {sys.executable}", remedy, "both")


def check_torch() -> MachineCheck:
    """Checks that torch can be imported, its version, and the CUDA that it was built for."""
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        return MachineCheck("torch", False, f"cannot be imported: {_one_line(str(error))}", "pip install torch", "both")
    version = tuple(int(number) for number in re.findall(r"\d+", str(torch.__version__))[:2])
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
    good = version >= _OLDEST_TORCH
    remedy = "" if good else 'pip install --upgrade "torch>=2.11"'
    return MachineCheck("torch", good, f"{torch.__version__}, {built}", remedy, "both")


def _torch_cuda() -> str | None:
    import torch

    return torch.version.cuda


def check_confinement() -> MachineCheck:
    """Checks the layers that confine a candidate's process, by a trial in another process."""
    code = (
        "import json, os, pathlib, sys, tempfile\n"
        "from harness.worker.confinement import confine\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "print(json.dumps(confine(folder, json.loads(sys.argv[2]), (os.getppid(),), False)), flush=True)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = [sys.executable, "-c", code, folder, json.dumps(readable_places())]
        said = _output(arguments, {**os.environ, "PYTHONPATH": str(package.FOLDER.parent)})
    try:
        layers = dict(json.loads(said or ""))
    except ValueError:
        return MachineCheck("confinement", None, "cannot be tried", "see docs/confinement.md", "both")
    missing = {layer: why for layer, why in layers.items() if why}
    held = ", ".join(layer for layer, why in layers.items() if not why) or "no layer"
    if not missing:
        return MachineCheck("confinement", True, held, "", "both")
    without = "; ".join(f"{layer}: {why}" for layer, why in missing.items())
    remedy = "candidates run without these layers; see docs/confinement.md, or run in a container"
    return MachineCheck("confinement", None, f"{held}; missing {without}", remedy, "both")


def check_driver(torch_cuda: str | None) -> MachineCheck:
    """Checks NVIDIA's driver: its version, the CUDA it supports, and whether torch can use that.

    Args:
        torch_cuda: The CUDA that torch was built for, such as ``13.0``; None without CUDA.
    """
    version, supported = _driver_version(), _driver_cuda()
    if version is None and supported is None:
        remedy = "Ubuntu: `sudo ubuntu-drivers install`; else https://www.nvidia.com/drivers; then restart"
        return MachineCheck("NVIDIA driver", False, "none", remedy, "cuda")
    shown = f"{supported[0]}.{supported[1]}" if supported else "an unknown version"
    found = f"{version or 'unknown version'}, supports CUDA {shown}"
    if torch_cuda is not None and supported is not None and supported[0] < int(torch_cuda.partition(".")[0]):
        remedy = f"update the driver, or {_torch_for(supported[0])}"
        return MachineCheck("NVIDIA driver", False, f"{found}; torch was built for CUDA {torch_cuda}", remedy, "cuda")
    return MachineCheck("NVIDIA driver", True, found, "", "cuda")


def _torch_for(cuda_major: int) -> str:
    index = "cu126" if cuda_major == 12 else "cu130"
    return f"`pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{index}`"


def _driver_version() -> str | None:
    """Returns the version from NVML, the kernel module or nvidia-smi; None if none tells."""
    text = _nvml_version() or driver_version()
    text = text or _output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    match = re.search(r"\b\d{3,}\.\d+(?:\.\d+)*\b", text or "")
    return match[0] if match else None


def _nvml_version() -> str | None:
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        answer = nvml.nvmlSystemGetDriverVersion()
        nvml.nvmlShutdown()
    except nvml.NVMLError:
        return None
    return answer.decode() if isinstance(answer, bytes) else str(answer)


def _driver_cuda() -> tuple[int, int] | None:
    """Returns the CUDA that the driver's library supports, without touching a GPU."""
    number = ctypes.c_int()
    try:
        status = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return (number.value // 1000, number.value % 1000 // 10) if status == 0 and number.value else None


def check_gpus(device: str, refusal: str) -> list[MachineCheck]:
    """Checks the GPUs that torch finds.

    Args:
        device: The chosen device.
        refusal: Why torch cannot use it; empty if it can.
    """
    import torch

    indices = range(torch.cuda.device_count()) if torch.cuda.is_available() else range(0)
    checks = [_check_gpu(index, device) for index in indices]
    if refusal or not checks:
        remedy = "nvidia-smi must list a GPU; " + (
            "set --device to one of those below"
            if checks
            else "in a container start it with `--gpus all`"
            if torch.version.cuda
            else _torch_for((_driver_cuda() or (13, 0))[0])
        )
        checks.insert(0, MachineCheck("GPU", False, refusal or "torch finds none", remedy, "cuda"))
    return checks


def _check_gpu(index: int, device: str) -> MachineCheck:
    import torch

    name = f"GPU {index}"
    try:
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
    except RuntimeError as error:
        remedy = f"look at `nvidia-smi -i {index}`: another process may hold the GPU or its memory"
        return MachineCheck(name, False if device == f"cuda:{index}" else None, _one_line(str(error)), remedy, "cuda")
    capability = f"compute capability {properties.major}.{properties.minor}"
    found = f"{properties.name}, {_gib(free)} of {_gib(total)} free, {capability}"
    return MachineCheck(name, True, found, "", "cuda")


def check_ceilings(device: str, checks: Sequence[MachineCheck], home: Path) -> list[MachineCheck]:
    """Checks whether the ceilings of the chosen GPU, or of the first one, are measured.

    The result is empty without a GPU.

    Args:
        device: The chosen device.
        checks: The earlier checks. The function does not ask a GPU that does not work.
        home: ``HARNESS_HOME``.
    """
    name = f"GPU {device.partition(':')[2] or 0}"
    if not any(check.name == name and check.ok for check in checks):
        return []
    import torch

    from harness.device.environment import describe_gpu
    from harness.timing import ceilings

    with torch.cuda.device(int(name.removeprefix("GPU "))):
        known = ceilings.load(home, describe_gpu())
    if known is None:
        remedy = f"`python -m harness doctor --calibrate --device {name.replace('GPU ', 'cuda:')}`"
        return [MachineCheck("ceilings", None, "not measured", remedy, "cuda")]
    figures = ", ".join(f"{what} {figure}" for what, figure in known.figures().items())
    return [MachineCheck("ceilings", True, f"{figures}; measured {known.measured_at}", "", "cuda")]


def calibrate(wanted: str, home: Path) -> Ceilings:
    """Measures the ceilings of a GPU, which should be otherwise idle, and saves them.

    Args:
        wanted: The device: ``auto``, ``cuda`` or ``cuda:N``.
        home: ``HARNESS_HOME``.

    Raises:
        UsageError: The device is none of these, or means the CPU.
        ToolchainError: Torch is missing or too old.
        DeviceError: There is no such GPU, or the measurement failed.
        OSError: ``HARNESS_HOME`` cannot be written.
    """
    installed = check_torch()
    if not installed.ok:
        raise ToolchainError(f"doctor --calibrate needs torch: {installed.found}; {installed.remedy}")
    from harness.device import devices
    from harness.device.environment import describe_gpu
    from harness.timing import ceilings

    device = devices.choose(wanted)
    if device.type != "cuda":
        raise UsageError(
            f"doctor --calibrate measures what a GPU reaches, and --device {wanted} means the CPU emulator here, "
            "which is never timed; name a GPU with --device cuda:N"
        )
    measured = ceilings.measure(device)
    ceilings.save(home, describe_gpu(), measured)
    return measured


def check_nvcc(torch_cuda: str | None) -> MachineCheck:
    """Checks CUDA's compiler on a kernel, and that it has the major version of torch's CUDA.

    On the CPU, only `evaluate --check` uses it.

    Args:
        torch_cuda: The CUDA that torch was built for, such as ``13.0``; None without CUDA.
    """
    try:
        version = nvcc_version()
    except ToolchainError as error:
        remedy = f"{_one_line(str(error))}; without a GPU, `evaluate --check` then says whether solutions build for one"
        return MachineCheck("nvcc", False, "not found or does not run", remedy, "cuda")
    found = f"{version.strip()}, {cuda_home()}/bin/nvcc"
    release = re.search(r"release (\d+)", version)
    if release and torch_cuda and release[1] != torch_cuda.partition(".")[0]:
        remedy = (
            f"`apt-get install cuda-toolkit-{torch_cuda.replace('.', '-')}` from NVIDIA's repository, then "
            f"`export CUDA_HOME=/usr/local/cuda-{torch_cuda}`"
        )
        return MachineCheck("nvcc", False, f"{found}; torch was built for CUDA {torch_cuda}", remedy, "cuda")
    if failure := _nvcc_failure():
        return MachineCheck("nvcc", False, f"{found}; it does not compile a kernel: {failure}", INSTALL_NVCC, "cuda")
    return MachineCheck("nvcc", True, found, "", "cuda")


def _nvcc_failure() -> str:
    """Returns why nvcc cannot compile a kernel, such as a missing package from PyPI.

    The result is empty if it can.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.cu"
        source.write_text(_KERNEL, encoding="utf-8")
        command = [f"{cuda_home()}/bin/nvcc", "-cubin", str(source), "-o", f"{source}.cubin"]
        try:
            finished = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=SELF_TEST_LIMIT_S,
                cwd=folder,
                env={**os.environ, "TMPDIR": folder},
            )
        except (OSError, subprocess.SubprocessError) as error:
            return _one_line(str(error))
    telling = [line for line in finished.stdout.splitlines() if "error" in line or "fatal" in line]
    return "" if finished.returncode == 0 else _one_line((telling or [finished.stdout])[0]) or "it printed nothing"


def check_compiler() -> MachineCheck:
    """Checks the host's C++ compiler."""
    try:
        compiler = find_compiler()
    except ToolchainError as error:
        return MachineCheck("C++ compiler", False, "none that works", _one_line(str(error)), "both")
    path = shutil.which(compiler.command[0]) or compiler.command[0]
    return MachineCheck(
        "C++ compiler", True, f"{compiler.version}, {shlex.join((path, *compiler.command[1:]))}", "", "both"
    )


def check_headers() -> MachineCheck:
    """Checks Python's C headers, which every extension that is a Python module includes."""
    try:
        return MachineCheck("Python headers", True, str(python_include()), "", "both")
    except ToolchainError as error:
        return MachineCheck("Python headers", False, "not found", _one_line(str(error)), "both")


def check_ninja() -> MachineCheck:
    """Checks ninja, which torch's ``load_inline`` runs.

    It searches the same places as builds on a GPU.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    path = shutil.which("ninja", path=places)
    version = _output([path, "--version"]) if path else None
    if version is None:
        return MachineCheck("ninja", False, "not found", "`pip install ninja`; torch builds with it", "cuda")
    return MachineCheck("ninja", True, f"{version.strip()}, {path}", "", "cuda")


def check_package(name: str, module: str) -> MachineCheck:
    """Checks a Python package that passes tensors between processes on a GPU.

    Args:
        name: Name of the package for pip.
        module: Name of its module.
    """
    try:
        importlib.import_module(module)
        version = importlib.metadata.version(name)
    except (ImportError, OSError) as error:
        remedy = f"`pip install {name}`; it passes tensors between processes on a GPU"
        return MachineCheck(name, False, _one_line(str(error)), remedy, "cuda")
    return MachineCheck(name, True, version, "", "cuda")


def check_nvml() -> MachineCheck:
    """Checks the optional package that reads clocks, power and temperature of a GPU."""
    name, remedy = "nvidia-ml-py", "`pip install nvidia-ml-py`; records then have clocks, power and throttling"
    try:
        importlib.import_module("pynvml")
        return MachineCheck(name, True, importlib.metadata.version(name), "", "cuda")
    except (ImportError, OSError) as error:
        return MachineCheck(name, None, _one_line(str(error)), remedy, "cuda")


def check_ncu() -> MachineCheck:
    """Checks Nsight Compute, which only ``profile --ncu`` needs."""
    from harness.profiling.ncu import find_ncu

    try:
        return MachineCheck("ncu", True, str(find_ncu()), "", "cuda")
    except ToolchainError as error:
        return MachineCheck("ncu", None, "not found", f"for `profile --ncu` alone: {_one_line(str(error))}", "cuda")


def check_memory() -> MachineCheck:
    """Checks the free main memory for the compiler and the references."""
    free = available_memory()
    remedy = f"end other programs: a compiler needs {_gib(_LEAST_MEMORY_BYTES)} to read torch's headers"
    good = free >= _LEAST_MEMORY_BYTES
    return MachineCheck("memory", good, f"{_gib(free)} free", "" if good else remedy, "both")


def check_disk(home: Path) -> MachineCheck:
    """Checks that the harness's folder can be written and has room.

    If the folder does not exist, the check uses the nearest existing one above it.

    Args:
        home: ``HARNESS_HOME``; the check does not create it.
    """
    nearest = next(folder for folder in (home, *home.parents) if folder.exists())
    remedy = "`export HARNESS_HOME=FOLDER`, a folder that you can write, on a disk with room"
    try:
        free = shutil.disk_usage(nearest).free
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        return MachineCheck("HARNESS_HOME", False, f"{home} cannot be written: {error.strerror}", remedy, "both")
    good = free >= _LEAST_DISK_BYTES
    return MachineCheck("HARNESS_HOME", good, f"{home}, writable, {_gib(free)} free", "" if good else remedy, "both")


def check_emulator(checks: Sequence[MachineCheck], home: Path) -> MachineCheck:
    """Builds the emulator's runtime in ``HARNESS_HOME`` and runs a kernel on it.

    Args:
        checks: The earlier checks. If one that the test needs failed, the test does not run.
        home: ``HARNESS_HOME``.
    """
    name = "emulator self-test"
    if lacking := _lacking(checks, "torch", "C++ compiler", "HARNESS_HOME"):
        return _not_run(name, lacking, "cpu")
    from harness.emulator.toolchain import build_runtime

    try:
        libraries = build_runtime(home / "emulator")
    except (ToolchainError, OSError) as error:
        return MachineCheck(name, False, "the runtime cannot be built", _one_line(str(error)), "cpu")
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
        name, False, f"not run: it takes {', '.join(lacking)}", "see there, then run this again", needed_for
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
        return MachineCheck(name, False, failure, f"{remedy}; if that does not help, report this", needed_for)
    did = "memory was shared and read back" if probe == "exchange" else "a kernel was built and ran right"
    return MachineCheck(name, True, did, "", needed_for)


def _output(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """Returns the output of a program, or None if it is missing, fails or hangs."""
    try:
        finished = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_TOOL_LIMIT_S, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return finished.stdout


def _one_line(text: str) -> str:
    return " ".join(text.split())[:600]


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
