"""Traces a candidate that passed: which kernels it launches, what it leaves in its process.

This is evidence and no proof. Still, what no honest kernel does breaks an integrity rule
(docs/read-a-verdict.md). A candidate that knows the checks can hide from them. Against it there is only
what the judge measures by itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.aten.operators import heavy_operator
from harness.judge.case_context import CaseContext, backward_command
from harness.judge.evidence.links import Links, links
from harness.judge.evidence.ownership import LOW_SHARE, disagreement, own_share
from harness.judge.process.faults import stop_for
from harness.judge.process.time_limits import Clock
from harness.judge.process.worker_handle import WorkerHandle
from harness.records.kernels import CopyUse, KernelUse
from harness.records.record import REPORT, Finding, own_share_text
from harness.records.rules import FLAGS, LIBRARY_OPERATORS, NO_OWN_KERNEL, OTHER_STREAMS, REPLACED_FUNCTIONS, THREADS
from harness.system.text import bare_kernel_name, shortened
from harness.wire.commands import Inspect, Trace
from harness.wire.replies import Inspected, Launched, Traced

#: Limits on what an honest worker reports: kernels, and characters of a name.
MAX_KERNELS, MAX_NAME_CHARACTERS = 1000, 200
#: Number of names in a sentence.
TOLD = 3
#: Characters kept of a line from a compiler.
MAX_LINE_CHARACTERS = 300
_TORCHS_WORK = "torch computes these, not a kernel of the solution"


def traced(
    context: CaseContext,
    worker: WorkerHandle,
    clock: Clock,
    libraries: Iterable[Path] = (),
    latencies: Mapping[str, float | None] = MappingProxyType({}),
) -> dict[str, Any]:
    """Run the candidate once more and inspect its process; return the record fields of both.

    Args:
        context: The case's context.
        worker: The candidate's worker.
        clock: The seconds that the candidate may use for this.
        libraries: The judge's copies of what the candidate built.
        latencies: Median latency in milliseconds by direction, of what was timed.

    Raises:
        CandidateStopped: The candidate failed this time, or has replaced functions that no kernel
            replaces.
    """
    backward = backward_command(context) if context.leaves else None
    reply = worker.request(Trace(backward), clock, "running under the profiler")
    if not isinstance(reply, Traced):
        raise stop_for(reply, context.faults)
    told = {"forward": reply.forward} | ({"backward": reply.backward} if backward is not None else {})
    operators = _operators(reply, list(told))
    # Before its build came back the candidate may have put another library in the place of the one
    # that it had loaded. On a GPU torch and Triton load code that they remove, and time decides.
    loaded = worker.loaded if reply.work is not None else set()
    named = links([*libraries, *loaded])
    findings = [_heavy(operators)] if operators else []
    findings += _unseen(named, operators)
    share = own_share(reply, named, _largest(context))
    fields: dict[str, Any] = {"operators": operators, "own_share": share}
    if reply.seen:
        kernels = {direction: _uses(launched) for direction, launched in told.items()}
        fields["kernels"] = kernels
        fields["copies"] = {direction: found for direction, launched in told.items() if (found := _copies(launched))}
        without = [direction for direction, uses in kernels.items() if not any(use.own for use in uses)]
        if without:
            findings.insert(0, _none_of_its_own(reply, {one: kernels[one] for one in without}, kernels))
        elif share is not None and share < LOW_SHARE:
            message = own_share_text(share, "cpu" if reply.work is not None else "cuda")
            findings.insert(
                0, _reported(NO_OWN_KERNEL, message + _refused(reply), "let the solution's own kernels do the work")
            )
        elif share is None and reply.work is not None:
            remedy = "leave torch's counting alone, and loaded libraries where they are"
            findings.insert(0, _reported(NO_OWN_KERNEL, "nothing tells how much its own kernels do", remedy))
        if words := disagreement(reply, latencies):
            remedy = f"{own_share_text(share or 0.0, 'cuda')} in traced calls does not apply to timed calls"
            findings.append(_reported(NO_OWN_KERNEL, words, remedy))
        findings += _on_other_streams(told)
    return {**fields, "findings": (*findings, *_inspected(context, worker, clock))}


def launches_own_kernels(context: CaseContext, worker: WorkerHandle, clock: Clock) -> bool:
    """Return whether a kernel of the candidate's own runs; true also if none can be seen.

    Raises:
        CandidateStopped: The candidate failed this time.
    """
    reply = worker.request(
        Trace(backward_command(context) if context.leaves else None), clock, "running again under the profiler"
    )
    if not isinstance(reply, Traced):
        raise stop_for(reply, context.faults)
    return not reply.seen or any(one.own for one in (*reply.forward, *reply.backward))


def _inspected(context: CaseContext, worker: WorkerHandle, clock: Clock) -> list[Finding]:
    """Report what the candidate has left in its process.

    Raises:
        CandidateStopped: It has replaced functions that no kernel replaces.
    """
    reply = worker.request(Inspect(), clock, "being inspected")
    if not isinstance(reply, Inspected):
        raise stop_for(reply, context.faults)
    if reply.replaced:
        message = f"replaced {_names(reply.replaced)}, which measure time, wait, compare or pass results on"
        context.exchange.integrity.broken(REPLACED_FUNCTIONS, message)
    findings = []
    if reply.threads:
        message = f"Python threads stay alive between calls: {_names(reply.threads)}"
        findings.append(_reported(THREADS, message, "end them, or wait for their results, before a call returns"))
    if reply.flags:
        message = f"changed settings of torch and did not restore them: {_names(reply.flags)}"
        findings.append(_reported(FLAGS, message, "change settings in a context manager that restores them"))
    return findings


def _uses(launched: tuple[Launched, ...]) -> tuple[KernelUse, ...]:
    """Convert the worker's report on kernels, which may contain anything."""
    return tuple(
        KernelUse(shortened(one.name, MAX_NAME_CHARACTERS), max(0, one.calls), one.own, one.device_ms)
        for one in [one for one in launched if not one.is_copy][:MAX_KERNELS]
    )


def _copies(launched: tuple[Launched, ...]) -> tuple[CopyUse, ...]:
    """Convert the worker's report on copies and fills, which may contain anything."""
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
    """Convert the worker's report on torch's operators, which may contain anything."""
    return {
        direction: {
            shortened(name, MAX_NAME_CHARACTERS): max(0, count) for name, count in list(counts.items())[:MAX_KERNELS]
        }
        for direction in directions
        if (counts := reply.operators.get(direction))
    }


def _heavy(operators: dict[str, dict[str, int]]) -> Finding:
    words = [f"{direction}: {_names(list(found))}" for direction, found in operators.items()]
    message = f"torch's heavy operators ran: {'; '.join(words)}"
    return _reported(LIBRARY_OPERATORS, message, _TORCHS_WORK)


def _on_other_streams(told: dict[str, tuple[Launched, ...]]) -> list[Finding]:
    aside = {one.name: None for launched in told.values() for one in launched if one.aside > 0}
    if not aside:
        return []
    message = f"work ran on streams other than the current one: {_names(list(aside))}"
    return [_reported(OTHER_STREAMS, message, "make the current stream wait for that work before the call returns")]


def _largest(context: CaseContext) -> int:
    """Return the number of elements of the largest output or gradient."""
    regions = (*context.exchange.outputs, *(context.exchange.gradients[name] for name in context.leaves))
    return max((math.prod(region.shape) for region in regions), default=0)


def _unseen(named: Links, operators: dict[str, dict[str, int]]) -> list[Finding]:
    """Report functions of torch that the libraries name but that nothing counted."""
    ran = {heavy_operator(name) for counts in operators.values() for name in counts}
    idle = [name for name in named.heavy if name not in ran]
    told = (
        (
            "call functions of torch or of a library behind it, past torch's dispatcher, so that nothing counts them",
            named.direct,
        ),
        ("name functions that look up or hide others at run time", named.hidden),
        ("name heavy operators of torch that did not run in the traced calls", idle),
    )
    return [
        _reported(LIBRARY_OPERATORS, f"its libraries {words}: {_names(list(names))}", _TORCHS_WORK)
        for words, names in told
        if names
    ]


def _refused(reply: Traced) -> str:
    """Quote the start of a compiler's refusal, which the candidate may have swallowed."""
    return f"; its build failed: {shortened(reply.refused[0], MAX_LINE_CHARACTERS)}" if reply.refused else ""


def _none_of_its_own(reply: Traced, without: dict[str, tuple[KernelUse, ...]], kernels: Collection[str]) -> Finding:
    names = list(dict.fromkeys(bare_kernel_name(use.name) for uses in without.values() for use in uses))
    where = "" if len(without) == len(kernels) else f" in {' or '.join(without)}"
    others = f": only {_names(names)}" if names else ""
    remedy = "call the operators that load_inline built, in forward and backward; otherwise the speed is torch's"
    return _reported(NO_OWN_KERNEL, f"no kernel of the solution's own ran{where}{others}{_refused(reply)}", remedy)


def _reported(kind: str, message: str, remedy: str) -> Finding:
    return Finding(kind, kernel=None, line=None, accesses=(), remedy=remedy, message=message, level=REPORT)


def _names(names: Sequence[str]) -> str:
    shown = [shortened(name, MAX_NAME_CHARACTERS) for name in names[:TOLD]]
    return f"{', '.join(shown)}{', ...' if len(names) > TOLD else ''}"
