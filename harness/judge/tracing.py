"""Which kernels a candidate that passed launches: evidence of what it does, and no proof."""

from __future__ import annotations

from typing import Any

from harness.judge.handle import Clock, WorkerHandle
from harness.judge.trial import Setting, backward_command, stop_for
from harness.records import REPORT, CopyUse, Finding, KernelUse
from harness.text import shortened
from harness.wire.messages import Launched, Trace, Traced

#: An honest worker tells of no more, and of no longer names.
MAX_KERNELS, MAX_NAME_CHARACTERS = 1000, 200
NO_OWN_KERNEL = "no-own-kernel"


def traced(setting: Setting, worker: WorkerHandle, clock: Clock) -> dict[str, Any]:
    """Have the candidate run once more; the record's fields that this fills.

    Raises:
        CandidateStopped: It did not run this time.
    """
    backward = backward_command(setting) if setting.leaves else None
    reply = worker.request(Trace(backward), clock, "running under the profiler")
    if not isinstance(reply, Traced):
        raise stop_for(reply)
    if not reply.seen:
        return {}
    told = {"forward": reply.forward} | ({"backward": reply.backward} if backward is not None else {})
    kernels = {direction: _uses(launched) for direction, launched in told.items()}
    copies = {direction: found for direction, launched in told.items() if (found := _copies(launched))}
    findings = () if any(use.own for uses in kernels.values() for use in uses) else (_none_of_its_own(kernels),)
    return {"kernels": kernels, "copies": copies, "findings": findings}


def _uses(launched: tuple[Launched, ...]) -> tuple[KernelUse, ...]:
    """What the worker says of its kernels; it may say anything."""
    return tuple(
        KernelUse(shortened(one.name, MAX_NAME_CHARACTERS), max(0, one.calls), one.own, one.device_ms)
        for one in [one for one in launched if not one.is_copy][:MAX_KERNELS]
    )


def _copies(launched: tuple[Launched, ...]) -> tuple[CopyUse, ...]:
    """What the worker says of copies and fills; it may say anything."""
    return tuple(
        CopyUse(
            shortened(one.name, MAX_NAME_CHARACTERS),
            max(0, one.calls),
            one.device_ms,
            None if one.bytes is None else max(0, one.bytes),
        )
        for one in [one for one in launched if one.is_copy][:MAX_KERNELS]
    )


def _none_of_its_own(kernels: dict[str, tuple[KernelUse, ...]]) -> Finding:
    names = list(dict.fromkeys(use.name for uses in kernels.values() for use in uses))
    others = f": only {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}" if names else ""
    return Finding(
        NO_OWN_KERNEL,
        None,
        None,
        (),
        "call the operators that load_inline built, in forward and backward; whatever is fast here is torch's",
        f"no kernel of the solution's own ran{others}",
        REPORT,
    )
