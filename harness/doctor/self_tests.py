"""Runs the kernels by which ``doctor`` tests a device, in separate processes with a time limit.

A broken driver may hang or kill the process that calls it. That process is
``python -m harness.doctor.self_tests SETTINGS``.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.compilation.errors import BuildError
from harness.errors import DeviceError, HarnessError
from harness.project.paths import import_path
from harness.system.processes import die_with_parent

#: Seconds that a self-test may take, with its build.
SELF_TEST_LIMIT_S = 120.0
_ARENA_BYTES = 1 << 20
_BLOCKS, _THREADS = 3, 128
_KERNEL = """
#include <cuda_runtime.h>

// Reverses each block's numbers through shared memory: wrong wherever threads, barriers or indices are.
__global__ void reverse_kernel(const int* given, int* received) {
    __shared__ int values[128];
    int start = blockIdx.x * blockDim.x;
    values[threadIdx.x] = given[start + threadIdx.x];
    __syncthreads();
    received[start + threadIdx.x] = 3 * values[blockDim.x - 1 - threadIdx.x] + 1;
}

extern "C" int reverse(const int* given, int* received, int blocks) {
    reverse_kernel<<<blocks, 128>>>(given, received);
    return cudaGetLastError();
}
"""


def run_probe(settings: Mapping[str, Any], folder: Path, limit_s: float) -> str:
    """Runs a probe in another process.

    Args:
        settings: ``probe`` (``kernel`` or ``exchange``), ``device``, ``libraries``, ``folder``,
            ``parent``.
        folder: A private folder, which the caller removes.
        limit_s: Seconds that the probe may take.

    Returns:
        The error in words, or an empty string for success.
    """
    environment = {**os.environ, "PYTHONPATH": import_path(), "TMPDIR": str(folder)}
    said, log = folder / "said.txt", folder / "log.txt"
    with said.open("wb") as said_file, log.open("wb") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.doctor.self_tests", json.dumps(settings)],
            stdin=subprocess.DEVNULL,
            stdout=said_file,
            stderr=log_file,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"no result within {limit_s:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing is left of the group
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code == 0:
        return ""
    message = said.read_text(encoding="utf-8", errors="replace")
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return " ".join(message.split())[:600] or ": ".join([ended, *last])


def probe_kernel(device: str, libraries: Mapping[str, str], folder: Path) -> None:
    """Builds a kernel as for a solution, runs it, and checks its result.

    Raises:
        BuildError: The kernel does not build.
        DeviceError: The kernel does not run, or its result is wrong.
    """
    import torch

    from harness.worker.platforms import platform_for

    target = platform_for(device, libraries)
    (folder / "probe.py").touch()  # stands for the solution
    loader = target.loader(folder / "probe.py", {}, folder / "build", lambda event, name: None)
    with target.running():
        library = ctypes.CDLL(
            loader.load_inline(
                name="harness_doctor",
                cpp_sources="",
                cuda_sources=_KERNEL,
                no_implicit_headers=True,
                is_python_module=False,
            )
        )
        given = torch.arange(_BLOCKS * _THREADS, dtype=torch.int32, device=target.device)
        received = torch.full_like(given, -1)
        target.synchronize()
        status = library.reverse(ctypes.c_void_p(given.data_ptr()), ctypes.c_void_p(received.data_ptr()), _BLOCKS)
        target.synchronize()
    reports = [str(report.get("message")) for report in target.take_reports()]
    if status != 0 or reports:
        raise DeviceError("; ".join([f"the launch returned CUDA error {status}", *reports]))
    expected = given.cpu().reshape(_BLOCKS, _THREADS).flip(1).flatten() * 3 + 1
    if not torch.equal(received.cpu(), expected):
        raise DeviceError("the kernel ran, but its result is wrong")


def probe_exchange(index: int) -> None:
    """Allocates, exports, imports and maps memory as the judge and a worker share it.

    Raises:
        DeviceError: The driver refuses, or one mapping does not show what the other wrote.
    """
    import torch

    from harness.wire import cuda_memory

    torch.cuda.set_device(index)
    owned, descriptor = cuda_memory.create(index, _ARENA_BYTES)
    shared = cuda_memory.attach(index, descriptor, owned.mapped_bytes)
    pattern = (torch.arange(owned.mapped_bytes, device=f"cuda:{index}") % 251).to(torch.uint8)
    owned.tensor().copy_(pattern)
    torch.cuda.synchronize(index)
    arrived = torch.equal(shared.tensor(), pattern)
    shared.close()
    owned.close()
    if not arrived:
        raise DeviceError("data written through one mapping of shared memory does not appear in the other")


def main(arguments: Sequence[str]) -> int:
    """Runs one probe for ``self_test`` and prints an error to stdout."""
    settings = json.loads(arguments[0])
    die_with_parent(settings["parent"])
    try:
        if settings["probe"] == "exchange":
            probe_exchange(int(settings["device"].partition(":")[2]))
        else:
            probe_kernel(settings["device"], settings["libraries"], Path(settings["folder"]))
    except (HarnessError, BuildError, RuntimeError, OSError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(exit_code)  # skips unloading, in which the emulator or a broken driver may fail
