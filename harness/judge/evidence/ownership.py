"""Computes the share of the work that a candidate's own kernels do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from harness.judge.evidence.links import Links
from harness.wire.replies import Launched, Traced

#: Below this share the report says that a candidate has no kernel of its own that counts.
LOW_SHARE = 0.05
#: A trace agrees with timed calls if its kernels and copies take this share of their latency.
AGREES = (0.5, 1.5)
#: Kernels that take less in all say nothing, since a trace times them to microseconds.
SHORTEST_MS = 0.5
#: A call may wait so long for Python and autograd, and so long for each launch. Of 60 directions of honest solutions on
#: an H200 a forward with backward of 15 launches waited longest, 1.45 ms.
CALL_WAITS_MS, LAUNCH_WAITS_MS = 1.0, 0.1


def own_share(reply: Traced, links: Links, largest: int) -> float | None:
    """Return the candidate's own kernels' share of the work, from 0 to 1; None if it is unknown.

    It is unknown if nothing was seen, or on the emulator if a library keeps operators from being
    counted.

    Args:
        reply: The worker's report on its calls.
        links: What the candidate's libraries name of torch. Nothing tells how often a function
            called past the dispatcher runs. On the emulator each counts as if every forward gave
            it the largest tensor.
        largest: Number of elements of the case's largest output or gradient.
    """
    if reply.work is not None:
        if not links.is_counted:
            return None
        own = max(0, reply.work.threads)
        direct = len(links.direct) * max(0, reply.work.forwards) * largest
        return _share(own, own + max(0, reply.work.elements) + direct)
    if not reply.seen:
        return None
    kernels = [one for one in (*reply.inference, *reply.forward, *reply.backward) if not one.is_copy]
    return _share(_milliseconds(one for one in kernels if one.own), _milliseconds(kernels))


def disagreement(reply: Traced, latencies: Mapping[str, float | None]) -> str:
    """Describe why the traced calls do not represent the timed ones; empty if they do.

    Args:
        reply: The worker's report on its calls.
        latencies: Median latency in milliseconds by direction (``forward``, ``forward_backward``).
            None or missing if it was not measured.
    """
    if not reply.seen:
        return ""
    traced = {"forward": reply.inference, "forward_backward": (*reply.forward, *reply.backward)}
    for direction, launched in traced.items():
        latency, spent = latencies.get(direction), _milliseconds(launched)
        if latency is None:
            continue
        waits = CALL_WAITS_MS + LAUNCH_WAITS_MS * sum(one.calls for one in launched)
        is_short = spent < AGREES[0] * latency and latency - spent > waits
        if is_short or spent > max(AGREES[1] * latency, SHORTEST_MS):
            return (
                f"the traced {direction.replace('_', ' with ')} differs from the timed one: its kernels and "
                f"copies take {spent:.3g} ms, timed calls take {latency:.3g} ms"
            )
    return ""


def _milliseconds(launched: Iterable[Launched]) -> float:
    """Sum the time of kernels and copies; a worker may report nonsense, which counts as none."""
    times = (one.device_ms for one in launched)
    return sum(time for time in times if time is not None and math.isfinite(time) and time > 0)


def _share(own: float, everything: float) -> float:
    return own / everything if everything > 0 else 0.0
