"""Loads the emulator's C++ runtime into the test's own process, with compiled kernels."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

import harness.emulator
from harness.emulator.compiler import find_compiler
from harness.emulator.lines import with_lines
from harness.emulator.rewrite import rewrite_cuda
from harness.emulator.session import FILLS

ROOT = Path(harness.emulator.__file__).parent
COMPILE = [
    *("g++", "-std=c++20", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing"),
    *(f"-I{ROOT / 'include'}", f"-I{ROOT / 'runtime'}"),
]
ORDERS = {"forward": 0, "reverse": 1, "random": 2}
SUCCESS, INVALID_VALUE, INVALID_CONFIGURATION, ASSERT, LAUNCH_FAILURE = 0, 1, 9, 710, 719


class Emulator:
    """The runtime, and a test's kernels linked against it; in the checking mode where these are built for it."""

    def __init__(self, runtime: Path, kernels: Path, checked: bool = False):
        self.checked = checked
        self.runtime = ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
        self.kernels = ctypes.CDLL(str(kernels))
        self.runtime.cuemu_take_reports.restype = ctypes.c_char_p
        self.runtime.cuemu_set_order.argtypes = [ctypes.c_int, ctypes.c_ulonglong]
        self.runtime.cuemu_cudaGetErrorString.restype = ctypes.c_char_p

    def reports(self) -> list[dict[str, object]]:
        return with_lines(json.loads(self.runtime.cuemu_take_reports()))

    def only_report(self, kind: str, kernel: str) -> dict[str, object]:
        (report,) = self.reports()
        assert (report["kind"], report["kernel"]) == (kind, kernel)
        assert report["remedy"]
        return report

    def last_error(self) -> int:
        return self.runtime.cuemu_cudaGetLastError()

    def begin(self) -> None:
        self.runtime.cuemu_set_checking(int(self.checked), *FILLS[0])
        # The kernels work on arrays of ctypes, which are the host's memory: all of it, from the second page on.
        self.runtime.cuemu_lend_tensor(ctypes.c_void_p(4096), ctypes.c_size_t(2**62))

    def reset(self) -> None:
        self.runtime.cuemu_set_checking(0, *FILLS[0])
        self.runtime.cuemu_set_order(0, 0)
        self.runtime.cuemu_clear_error()
        self.reports()


def build_kernels(source: Path, runtime: Path, folder: Path, checked: bool = False) -> Path:
    """Compiles a C++ source as it is, or a CUDA source (.cu) rewritten."""
    library = folder / f"{source.stem}{'_checked' if checked else ''}.so"
    text = source.read_text(encoding="utf-8")
    unit = library.with_suffix(".cpp")
    unit.write_text(f'#line 1 "{source}"\n{rewrite_cuda(text) if source.suffix == ".cu" else text}', encoding="utf-8")
    link = [f"-L{runtime.parent}", "-lcuemu", f"-Wl,-rpath,{runtime.parent}"]
    compiler = find_compiler()
    flags = [*(compiler.checked_flags() if checked else compiler.fast_flags()), "-include", "cuemu_prelude.h"]
    flags += ["-include", "cuemu/ptx.h"] if "asm" in text else []
    compiled = library.with_suffix(".o")
    subprocess.run([*COMPILE, *flags, "-c", str(unit), "-o", str(compiled)], check=True)
    subprocess.run([*COMPILE, str(compiled), "-o", str(library), *link], check=True)
    return library


def floats(count: int, values: object = ()) -> ctypes.Array[ctypes.c_float]:
    return (ctypes.c_float * count)(*values)


def ints(count: int, values: object = ()) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * count)(*values)


def line_of(source: Path, text: str, after: str) -> int:
    """The number of the first line with ``text`` from the line with ``after`` on."""
    lines = source.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if after in line)
    return next(number for number, line in enumerate(lines[start:], start + 1) if text in line)
