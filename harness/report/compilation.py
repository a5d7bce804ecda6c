"""Describes nvcc's results for solutions that ran on the emulator, kernel by kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from harness.records.kernels import Compilation, CompiledKernel
from harness.records.record import EvaluationRecord, Status
from harness.system.text import one_line, printable

#: Maximum number of kernels in the line under the table; `show` lists all.
MOST_KERNELS = 4


def compiled_lines(records: Sequence[EvaluationRecord]) -> list[str]:
    """Describes, for each solution, what nvcc compiled over all of its cases, or why it did not.

    Variants of a template count as one kernel with the largest of each figure. Kernels that spill
    come first.

    Args:
        records: The records; those without a compilation are left out.
    """
    lines: dict[str, None] = {}
    for record in records:
        if record.compiled is not None and record.status is not Status.BUILD_ERROR:  # whose message says it
            lines[one_line(f"{_compiler(record.compiled)}: {record.solution}: {_summary(record.compiled)}")] = None
    return list(lines)


def compilation_lines(compilation: Compilation) -> Iterator[str]:
    """Describes a compilation in full: a headline, a line for each kernel, and the errors."""
    if not compilation.compiler:
        yield f"not compiled for {one_line(compilation.arch)}: {one_line(compilation.error)}"
        return
    yield f"{_compiler(compilation)}, {compilation.seconds:.1f} s: device code compiled, but did not run on a GPU"
    for kernel in compilation.kernels:
        more = f", stack {_size(kernel.stack_bytes)}" if kernel.stack_bytes else ""
        more += f", constants {_size(kernel.constant_bytes)}" if kernel.constant_bytes else ""
        yield one_line(f"  {_figures(kernel, kernel.name)}{more}")
    if compilation.error:
        yield "\n".join(f"  {line}" for line in printable(compilation.error).splitlines())
    elif not compilation.kernels:
        yield "  no kernel: load_inline or load was given no CUDA source"


def _compiler(compilation: Compilation) -> str:
    return f"nvcc {one_line(compilation.compiler)} {one_line(compilation.arch)}".replace("nvcc  ", "no nvcc, ")


def _summary(compilation: Compilation) -> str:
    if not compilation.compiler:
        return "not compiled for a GPU; `doctor` says how to get nvcc"
    if compilation.error:
        return compilation.error.splitlines()[0]
    if not compilation.kernels:
        return "no CUDA source"
    variants: dict[str, list[CompiledKernel]] = {}
    for kernel in compilation.kernels:
        variants.setdefault(_plain_name(kernel.name), []).append(kernel)
    worst = {name: _largest(kernels) for name, kernels in variants.items()}
    spilling_first = sorted(worst, key=lambda name: not _spills(worst[name]))
    words = [_figures(worst[name], name, tells_all=False) for name in spilling_first[:MOST_KERNELS]]
    words += [f"{len(worst) - MOST_KERNELS} more (see `show`)"] if len(worst) > MOST_KERNELS else []
    return "; ".join([*words, *([] if any(map(_spills, worst.values())) else ["no spills"])])


def _largest(kernels: Sequence[CompiledKernel]) -> CompiledKernel:
    """Returns the largest of each figure over the variants of a template."""
    figures = [field.name for field in dataclasses.fields(CompiledKernel) if field.name not in ("name", "arch")]
    most: dict[str, Any] = {name: max(getattr(kernel, name) or 0 for kernel in kernels) for name in figures}
    return dataclasses.replace(kernels[0], **most)


def _figures(kernel: CompiledKernel, name: str, tells_all: bool = True) -> str:
    shared = f", {_size(kernel.shared_bytes)} shared" if kernel.shared_bytes else ""
    spills = ", no spills" if tells_all else ""
    if _spills(kernel):
        spills = f", spills {_size(kernel.spill_store_bytes)} stored, {_size(kernel.spill_load_bytes)} loaded"
    return f"{name} {kernel.registers} registers{shared}{spills}"


def _spills(kernel: CompiledKernel) -> bool:
    return bool(kernel.spill_store_bytes or kernel.spill_load_bytes)


def _plain_name(name: str) -> str:
    """Shortens ``space::tiles<a::b>`` to ``tiles``."""
    return name.partition("<")[0].rpartition("::")[2] or name


def _size(size: int) -> str:
    return f"{size} bytes" if size < 1024 else f"{size / 1024:.1f} KB"
