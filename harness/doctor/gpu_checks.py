"""Checks what judging on a GPU needs: driver, GPUs, ceilings, nvcc and its companion tools."""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.compilation.nvcc import INSTALL_NVCC, cuda_home, nvcc_version
from harness.device.devices import driver_version
from harness.doctor.checks import MachineCheck, gib, line_of, program_output
from harness.doctor.self_tests import SELF_TEST_LIMIT_S
from harness.errors import ToolchainError

#: The header of half precision needs one package more than other headers.
_KERNEL = "#include <cuda_fp16.h>\n__global__ void kernel(__half* x) { x[0] = __float2half(1.f); }\n"


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
    text = text or program_output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
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
            "set --device to one of the devices below"
            if checks
            else "start the container with `--gpus all`"
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
        return MachineCheck(name, False if device == f"cuda:{index}" else None, line_of(str(error)), remedy, "cuda")
    capability = f"compute capability {properties.major}.{properties.minor}"
    found = f"{properties.name}, {gib(free)} of {gib(total)} free, {capability}"
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


def check_nvcc(torch_cuda: str | None) -> MachineCheck:
    """Checks CUDA's compiler on a kernel, and that it has the major version of torch's CUDA.

    On the CPU, only `evaluate --check` uses it.

    Args:
        torch_cuda: The CUDA that torch was built for, such as ``13.0``; None without CUDA.
    """
    try:
        version = nvcc_version()
    except ToolchainError as error:
        remedy = (
            f"{line_of(str(error))}; without a GPU, `evaluate --check` can then test whether solutions build for one"
        )
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
        remedy = "see TMPDIR" if "No space left" in failure else INSTALL_NVCC
        return MachineCheck("nvcc", False, f"{found}; it does not compile a kernel: {failure}", remedy, "cuda")
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
            return line_of(str(error))
    telling = [line for line in finished.stdout.splitlines() if "error" in line or "fatal" in line]
    return "" if finished.returncode == 0 else line_of((telling or [finished.stdout])[0]) or "no output"


def check_nvml() -> MachineCheck:
    """Checks the optional package that reads clocks, power and temperature of a GPU."""
    name, remedy = "nvidia-ml-py", "`pip install nvidia-ml-py`; records then contain clocks, power and throttling"
    try:
        importlib.import_module("pynvml")
        return MachineCheck(name, True, importlib.metadata.version(name), "", "cuda")
    except (ImportError, OSError) as error:
        return MachineCheck(name, None, line_of(str(error)), remedy, "cuda")


def check_ncu() -> MachineCheck:
    """Checks Nsight Compute, which only ``profile --ncu`` needs."""
    from harness.profiling.ncu import find_ncu

    try:
        return MachineCheck("ncu", True, str(find_ncu()), "", "cuda")
    except ToolchainError as error:
        return MachineCheck(
            "ncu",
            None,
            "not found",
            f"only for `profile --ncu`: {line_of(str(error))}",
            "cuda",
        )
