"""Measures a call's GPU work with torch's profiler (CUPTI): kernels, copies and operators.

The result is evidence, not proof.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile

from harness.system.text import kernel_name
from harness.wire.replies import Launched

_COPIES = ("Memcpy", "Memset")
#: A part of the name of the kernel behind ``torch.cuda._sleep``.
_MARKER = "spin_kernel"


def launched(
    call: Callable[[], Any], libraries: Sequence[Path], written: Collection[str] = ()
) -> list[Launched] | None:
    """Returns the kernels of one call, and the driver's copies and fills for it.

    Args:
        call: The call. The function waits for all its work.
        libraries: The files that the candidate built. Kernels that they define are its own.
        written: The names of Triton kernels that its text defines. They are its own, too.

    Returns:
        One entry for each kernel and each kind of copy, in the order of their first launch; None if
        the profiler sees nothing at all.
    """
    try:
        # torch.profiler.profile wraps this class, but would first import torch._inductor for over a
        # second.
        profiler = profile(use_kineto=True, use_cpu=False, use_device="cuda", acc_events=True)
        profiler.__enter__()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError):  # no CUPTI, or another profiler uses it
        return None
    try:
        torch.cuda._sleep(1)  # type: ignore[no-untyped-call]  # marks the current stream
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
        Launched(
            name,
            calls=len(spent),
            own=False,
            device_ms=sum(spent),
            is_copy=True,
            bytes=moved.get(name),
            aside=aside[name],
        )
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
    """Runs a call and counts its torch operators.

    The count includes operators below Python's dispatch and on autograd's threads.

    Args:
        call: The call.

    Returns:
        For each operator, by its name in torch's schema, the number of runs, and 0 elements, which
        nothing needs on a GPU. Empty if the profiler does not start; then the call has not run.
    """
    try:
        profiler = profile(use_kineto=True, use_cpu=True, acc_events=True)
        profiler.__enter__()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError):  # another profiler is active
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


def bytes_moved(trace: Mapping[str, Any]) -> dict[str, int]:
    """Sums the bytes that copies and fills moved, by name, from a trace in Chrome's format.

    Args:
        trace: A trace that ``torch.profiler`` exported. Only the exported form has these bytes.

    Returns:
        The sums, without the names that have an event of unknown size.
    """
    found: dict[str, int | None] = {}
    for event in trace.get("traceEvents", []):
        name = event.get("name", "")
        if event.get("cat") in ("gpu_memcpy", "gpu_memset"):
            before, size = found.get(name, 0), event.get("args", {}).get("bytes")
            found[name] = before + size if before is not None and isinstance(size, int) else None
    return {name: total for name, total in found.items() if total is not None}


def _trace(profiler: profile) -> dict[str, Any]:
    """Returns the profiler's trace in Chrome's format; empty if it cannot be exported."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        try:
            profiler.export_chrome_trace(str(path))  # type: ignore[no-untyped-call]
            read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        except (RuntimeError, AssertionError, OSError, ValueError):
            return {}
    return read


def _stop(profiler: profile) -> bool:
    """Stops the profiler and returns whether that worked.

    A failed profiler is not the candidate's fault, since a profile is only evidence.
    """
    try:
        profiler.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


def is_defined(kernel: str, libraries: Iterable[bytes]) -> bool:
    """Tells whether one of the libraries registers a kernel of this name.

    The name can be mangled (length first) or ``extern "C"``.
    """
    name = _without_templates(kernel).rpartition("::")[2]
    mangled, plain = f"{len(name)}{name}".encode(), b"\0" + name.encode() + b"\0"
    return bool(name) and any(mangled in library or plain in library for library in libraries)


def _without_templates(kernel: str) -> str:
    """Removes template arguments: ``space<4>::tiles<4>`` becomes ``space::tiles``."""
    kept, depth = [], 0
    for character in kernel:
        depth += character == "<"
        if not depth:
            kept.append(character)
        depth -= character == ">" and depth > 0
    return "".join(kept)
