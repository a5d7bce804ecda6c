"""What a CUDA thread costs on the emulator, where nothing in its kernel waits: entered by itself, and in a loop.

Each kernel is built twice, with the loop that the rewriter puts around its body and without; both take turns in one
process, on one core. The results have to agree bit for bit.

    python -m benchmarks.emulator_threads
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.emulator.compiler import INCLUDE, find_compiler
from harness.emulator.rewrite import rewrite_cuda
from harness.emulator.toolchain import build_runtime

ELEMENTS = 1 << 18
REPETITIONS = 31
ORDERS = ("forward", "reverse", "random")
AT = "const int i = blockIdx.x * blockDim.x + threadIdx.x;"
#: By what makes it special: device functions before it, and the body of a kernel of (x, y, n).
KERNELS = {
    "a x + 1": ("", f"{AT} if (i < n) y[i] = 0.1f * x[i] + 1.0f;"),
    "max(x, 0)": ("", f"{AT} if (i >= n) return; y[i] = fmaxf(x[i], 0.0f);"),
    "sqrt(x) / (1 + x)": ("", f"{AT} if (i < n) y[i] = sqrtf(x[i]) / (1.0f + x[i]);"),
    "exp(x)": ("", f"{AT} if (i < n) y[i] = expf(x[i]);"),
    "a channel's bias": ("", f"{AT} if (i < n) y[i] = x[i] + x[i / 64 % 16];"),
    "grid-stride loop": (
        "",
        "for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) y[i] = 2 * x[i];",
    ),
    "index in a function": (
        "__device__ int own() { return blockIdx.x * blockDim.x + threadIdx.x; }",
        "const int i = own(); if (i < n) y[i] = 2 * x[i];",
    ),
    "index behind the guard": (
        "",
        "const int c = blockIdx.x % 4 * 256 + threadIdx.x, r = blockIdx.x / 4; "
        "if (r < n / 1024 && c < 1024) y[r * 1024 + c] = 2 * x[r * 1024 + c];",
    ),
}


def source() -> str:
    """The kernels as CUDA, each with a function that launches it."""
    parts: list[str] = []
    for number, (functions, body) in enumerate(KERNELS.values()):
        parts.append(f"{functions}\n__global__ void kernel{number}(const float* x, float* y, int n) {{ {body} }}")
        launch = f"kernel{number}<<<(n + 255) / 256, 256>>>(x, y, n);"
        parts.append(f'extern "C" void run{number}(const float* x, float* y, int n) {{ {launch} }}')
    return "\n".join(parts)


def built(text: str, runtime: Path, folder: Path, name: str) -> ctypes.CDLL:
    """A library of a rewritten text, compiled as solutions are."""
    compiler = find_compiler()
    unit, library = folder / f"{name}.cpp", folder / f"{name}.so"
    unit.write_text(text, encoding="utf-8")
    flags = [*compiler.common_flags(), *compiler.fast_flags(), f"-I{INCLUDE}", "-include", "cuemu_prelude.h"]
    command = [*compiler.command, *flags, "-shared", str(unit), "-o", str(library)]
    subprocess.run([*command, f"-L{runtime.parent}", "-lcuemu", f"-Wl,-rpath,{runtime.parent}"], check=True)
    return ctypes.CDLL(str(library))


def nanoseconds(libraries: list[ctypes.CDLL], number: int) -> list[float]:
    """Medians of the time a thread, for each library; the libraries take turns."""
    array = ctypes.c_float * ELEMENTS
    x = array(*(i * 7919 % 1000 / 100 for i in range(ELEMENTS)))
    spent: list[list[float]] = [[] for _ in libraries]
    results: list[bytes] = []
    for _ in range(REPETITIONS):
        results = []
        for library, times in zip(libraries, spent, strict=True):
            y = array()
            ctypes.memset(y, 0, ctypes.sizeof(y))
            begun = time.perf_counter()
            library[f"run{number}"](x, y, ELEMENTS)
            times.append((time.perf_counter() - begun) / ELEMENTS * 1e9)
            results.append(bytes(y))
    if results[0] != results[1]:
        raise SystemExit(f"kernel{number}: the results differ")
    return [statistics.median(times) for times in spent]


def main() -> int:
    """Builds, measures and prints."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    os.environ["CUEMU_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        core = build_runtime(folder).core
        runtime = ctypes.CDLL(str(core), mode=ctypes.RTLD_GLOBAL)
        runtime.cuemu_set_order.argtypes = [ctypes.c_int, ctypes.c_ulonglong]
        loops = rewrite_cuda(source())
        plain = re.sub(r"CUEMU_EACH_THREAD_(BEGIN\(\w+\)|END)", "", loops)
        libraries = [built(plain, core, folder, "plain"), built(loops, core, folder, "loops")]
        print("| kernel | " + " | ".join(f"{order}, ns a thread" for order in ORDERS) + " |\n|---|---|---|---|")
        for number, kernel in enumerate(KERNELS):
            row = [kernel]
            for order in range(len(ORDERS)):
                runtime.cuemu_set_order(order, 7)
                before, after = nanoseconds(libraries, number)
                row.append(f"{before:.1f} / {after:.2f} = {before / after:.1f}")
            print(f"| {' | '.join(row)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
