"""What a call runs on a GPU, as torch's profiler (CUPTI) sees it: kernels, copies and operators. Evidence, no proof."""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile

from harness.system.text import kernel_name
from harness.wire.messages import Launched

_COPIES = ("Memcpy", "Memset")
#: In the name of the kernel behind ``torch.cuda._sleep``.
_MARKER = "spin_kernel"


def launched(
    call: Callable[[], Any], libraries: Sequence[Path], written: Collection[str] = ()
) -> list[Launched] | None:
    """The kernels of one call, and the copies and fills that the driver did for it.

    Args:
        call: What to run; all its work is waited for.
        libraries: Files that the candidate built: what they define is its own.
        written: Names of Triton kernels that its text defines, which are its own, too.

    Returns:
        One entry per kernel and per kind of copy, in the order of their first launch; None where the profiler sees
        nothing at all.
    """
    try:
        # What torch.profiler.profile wraps, which would first import torch._inductor, for a second and more.
        profiler = profile(use_kineto=True, use_cpu=False, use_device="cuda", acc_events=True)
        profiler.__enter__()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError):  # no CUPTI, or somebody else uses it
        return None
    try:
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]  # tells which stream is the current one
        call()
        torch.cuda.synchronize()
    finally:
        stopped = _stop(profiler)
    if not stopped:
        return None
    seen = profiler.function_events or []
    events = [event for event in seen if event.device_type.name == "CUDA"]
    if not events:
        return None
    events.sort(key=lambda event: float(event.time_range.start))
    marker = next((event for event in events if _MARKER in event.name), None)
    times: dict[str, list[float]] = {}
    aside: dict[str, int] = {}
    for event in events:
        if event is marker:
            continue
        times.setdefault(event.name, []).append(event.time_range.elapsed_us() / 1e3)
        is_aside = marker is not None and event.device_resource_id != marker.device_resource_id
        aside[event.name] = aside.get(event.name, 0) + is_aside
    texts = [library.read_bytes() for library in libraries if library.is_file()]
    names = {name: kernel_name(name) for name in times}
    moved = bytes_moved(_trace(profiler)) if any(name.startswith(_COPIES) for name in times) else {}
    return [
        Launched(name, len(spent), False, sum(spent), True, moved.get(name), aside[name])
        if name.startswith(_COPIES)
        else Launched(
            names[name],
            len(spent),
            name in written or is_defined(names[name], texts),
            sum(spent),
            aside=aside[name],
        )
        for name, spent in times.items()
    ]


def operators(call: Callable[[], Any]) -> dict[str, tuple[int, int]]:
    """Run a call and count torch's operators in it, those below Python's dispatch and of autograd's threads included.

    Args:
        call: What to run.

    Returns:
        By name in torch's schema how often each ran, and 0 elements, which nobody asks for on a GPU. Empty where the
        profiler does not start; then the call has not run.
    """
    try:
        profiler = profile(use_kineto=True, use_cpu=True, acc_events=True)
        profiler.__enter__()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError):  # somebody else uses it
        return {}
    try:
        call()
    finally:
        stopped = _stop(profiler)
    counts: dict[str, tuple[int, int]] = {}
    for event in (profiler.function_events or []) if stopped else []:
        calls, elements = counts.get(event.name, (0, 0))
        counts[event.name] = calls + 1, elements
    return counts


def triton_kernels(text: str) -> frozenset[str]:
    """The names of the functions that a solution's text decorates as Triton kernels (``@triton.jit``)."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            decorators = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
            if any(ast.unparse(one) in ("triton.jit", "jit") for one in decorators):
                found.add(node.name)
    return frozenset(found)


def bytes_moved(trace: Mapping[str, Any]) -> dict[str, int]:
    """The bytes that copies and fills moved, by name, out of a trace in Chrome's format.

    Args:
        trace: As ``torch.profiler`` exports it; the one place where it tells these bytes.

    Returns:
        Sums; a name of which one event has no bytes is missing.
    """
    found: dict[str, int | None] = {}
    for event in trace.get("traceEvents", []):
        name = event.get("name", "")
        if event.get("cat") in ("gpu_memcpy", "gpu_memset"):
            before, size = found.get(name, 0), event.get("args", {}).get("bytes")
            found[name] = before + size if before is not None and isinstance(size, int) else None
    return {name: total for name, total in found.items() if total is not None}


def _trace(profiler: profile) -> dict[str, Any]:
    """What the profiler saw, in Chrome's format; empty where it cannot be had."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        try:
            profiler.export_chrome_trace(str(path))  # type: ignore[no-untyped-call]
            read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        except (RuntimeError, AssertionError, OSError, ValueError):
            return {}
    return read


def _stop(profiler: profile) -> bool:
    """Whether the profiler could be stopped: what it saw is evidence, and its faults are not the candidate's."""
    try:
        profiler.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


def is_defined(kernel: str, libraries: Iterable[bytes]) -> bool:
    """Whether one of these libraries registers a kernel of this name, mangled (length first) or ``extern "C"``."""
    name = _without_templates(kernel).rpartition("::")[2]
    mangled, plain = f"{len(name)}{name}".encode(), b"\0" + name.encode() + b"\0"
    return bool(name) and any(mangled in library or plain in library for library in libraries)


def _without_templates(kernel: str) -> str:
    """``space<4>::tiles<4>`` as ``space::tiles``."""
    kept, depth = [], 0
    for character in kernel:
        depth += character == "<"
        if not depth:
            kept.append(character)
        depth -= character == ">" and depth > 0
    return "".join(kept)
