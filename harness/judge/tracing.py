"""What a candidate that passed does: which kernels it launches, what it leaves in its process. Evidence, and no proof.

What no honest kernel does is an integrity rule all the same (docs/integrity.md); a candidate that knows how it is
looked at can hide it, and is left with what the judge measures by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from harness.judge.faults import stop_for
from harness.judge.handle import Clock, WorkerHandle
from harness.judge.trial import Setting, backward_command
from harness.records import REPORT, CopyUse, Finding, KernelUse
from harness.rules import FLAGS, LIBRARY_OPERATORS, NO_OWN_KERNEL, OTHER_STREAMS, REPLACED_FUNCTIONS, THREADS
from harness.text import shortened
from harness.wire.messages import Inspect, Inspected, Launched, Trace, Traced

#: An honest worker tells of no more, and of no longer names.
MAX_KERNELS, MAX_NAME_CHARACTERS = 1000, 200
#: How many names a sentence has.
TOLD = 3


def traced(setting: Setting, worker: WorkerHandle, clock: Clock) -> dict[str, Any]:
    """Have the candidate run once more, and look at its process; the record's fields that this fills.

    Raises:
        CandidateStopped: It did not run this time, or has replaced what no kernel replaces.
    """
    backward = backward_command(setting) if setting.leaves else None
    reply = worker.request(Trace(backward), clock, "running under the profiler")
    if not isinstance(reply, Traced):
        raise stop_for(reply, setting.faults)
    told = {"forward": reply.forward} | ({"backward": reply.backward} if backward is not None else {})
    operators = _operators(reply, list(told))
    findings = [_heavy(operators)] if operators else []
    fields: dict[str, Any] = {"operators": operators}
    if reply.seen:
        kernels = {direction: _uses(launched) for direction, launched in told.items()}
        fields["kernels"] = kernels
        fields["copies"] = {direction: found for direction, launched in told.items() if (found := _copies(launched))}
        without = [direction for direction, uses in kernels.items() if not any(use.own for use in uses)]
        if without:
            findings.insert(0, _none_of_its_own({direction: kernels[direction] for direction in without}, kernels))
        findings += _on_other_streams(told)
    return {**fields, "findings": (*findings, *_inspected(setting, worker, clock))}


def launches_own_kernels(setting: Setting, worker: WorkerHandle, clock: Clock) -> bool:
    """Whether a kernel of the candidate's own runs in forward or backward; so too where none can be seen.

    Raises:
        CandidateStopped: It did not run this time.
    """
    reply = worker.request(Trace(backward_command(setting) if setting.leaves else None), clock, "running once more")
    if not isinstance(reply, Traced):
        raise stop_for(reply, setting.faults)
    return not reply.seen or any(one.own for one in (*reply.forward, *reply.backward))


def _inspected(setting: Setting, worker: WorkerHandle, clock: Clock) -> list[Finding]:
    """What the candidate has left in its process.

    Raises:
        CandidateStopped: It has replaced what no kernel replaces.
    """
    reply = worker.request(Inspect(), clock, "being inspected")
    if not isinstance(reply, Inspected):
        raise stop_for(reply, setting.faults)
    if reply.replaced:
        message = f"replaced {_names(reply.replaced)}: what tells time, waits, compares or passes results on"
        setting.exchange.integrity.broken(REPLACED_FUNCTIONS, message)
    findings = []
    if reply.threads:
        message = f"Python threads live on between calls: {_names(reply.threads)}"
        findings.append(
            _reported(THREADS, message, "take their results before a call returns, as it must, or end them")
        )
    if reply.flags:
        message = f"settings of torch are left changed: {_names(reply.flags)}"
        findings.append(_reported(FLAGS, message, "change them under a context that puts them back"))
    return findings


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


def _operators(reply: Traced, directions: Sequence[str]) -> dict[str, dict[str, int]]:
    """What the worker says of torch's operators; it may say anything."""
    return {
        direction: {
            shortened(name, MAX_NAME_CHARACTERS): max(0, count) for name, count in list(counts.items())[:MAX_KERNELS]
        }
        for direction in directions
        if (counts := reply.operators.get(direction))
    }


def _heavy(operators: dict[str, dict[str, int]]) -> Finding:
    words = [f"{direction}: {_names(list(found))}" for direction, found in operators.items()]
    message = f"heavy operators of torch run: {'; '.join(words)}"
    return _reported(LIBRARY_OPERATORS, message, "what they compute is torch's work, and no kernel's of the solution")


def _on_other_streams(told: dict[str, tuple[Launched, ...]]) -> list[Finding]:
    aside = {one.name: None for launched in told.values() for one in launched if one.aside > 0}
    if not aside:
        return []
    message = f"work runs on other streams than the one that a call is made on: {_names(list(aside))}"
    return [_reported(OTHER_STREAMS, message, "have the current stream wait for it before the call returns")]


def _none_of_its_own(without: dict[str, tuple[KernelUse, ...]], kernels: Collection[str]) -> Finding:
    names = list(dict.fromkeys(use.name for uses in without.values() for use in uses))
    where = "" if len(without) == len(kernels) else f" in {' or '.join(without)}"
    others = f": only {_names(names)}" if names else ""
    remedy = "call the operators that load_inline built, in forward and backward; whatever is fast here is torch's"
    return _reported(NO_OWN_KERNEL, f"no kernel of the solution's own ran{where}{others}", remedy)


def _reported(kind: str, message: str, remedy: str) -> Finding:
    return Finding(kind, None, None, (), remedy, message, REPORT)


def _names(names: Sequence[str]) -> str:
    shown = [shortened(name, MAX_NAME_CHARACTERS) for name in names[:TOLD]]
    return f"{', '.join(shown)}{', ...' if len(names) > TOLD else ''}"
