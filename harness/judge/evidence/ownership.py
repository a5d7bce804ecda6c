"""Whose work a candidate's calls are: the share of its own kernels, from what ran and from what its libraries name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from harness.judge.evidence.links import Links
from harness.wire.replies import Launched, Traced

#: Below this share a candidate is told to have no kernel of its own that counts.
LOW_SHARE = 0.05
#: Calls shorter than this wait for launches, so that the time of their kernels says little of their latency.
SHORTEST_MS = 0.5
#: A trace agrees with timed calls where its kernels and copies take this share of their latency.
AGREES = (0.5, 1.5)


def own_share(reply: Traced, links: Links, largest: int) -> float | None:
    """The share of the work that the candidate's own kernels do, from 0 to 1; None where nothing was seen.

    Args:
        reply: What the worker says of its calls.
        links: What the candidate's libraries name of torch. On the emulator each function that is called past the
            dispatcher counts as if every forward gave it the largest tensor: nothing tells how often it runs.
        largest: Elements of the case's largest output or gradient.
    """
    if reply.work is not None:
        own = max(0, reply.work.threads)
        direct = len(links.direct) * max(0, reply.work.forwards) * largest
        return _share(own, own + max(0, reply.work.elements) + direct)
    if not reply.seen:
        return None
    kernels = [one for one in (*reply.inference, *reply.forward, *reply.backward) if not one.is_copy]
    return _share(_milliseconds(one for one in kernels if one.own), _milliseconds(kernels))


def disagreement(reply: Traced, latencies: Mapping[str, float | None]) -> str:
    """What keeps the traced calls from standing for the timed ones, in a sentence; empty where nothing does.

    Args:
        reply: What the worker says of its calls.
        latencies: Median latency in milliseconds by direction (``forward``, ``forward_backward``); None or missing
            where it was not measured.
    """
    if not reply.seen:
        return ""
    traced = {"forward": reply.inference, "forward_backward": (*reply.forward, *reply.backward)}
    for direction, launched in traced.items():
        latency, spent = latencies.get(direction), _milliseconds(launched)
        if latency is None or max(latency, spent) < SHORTEST_MS:
            continue
        if not AGREES[0] * latency <= spent <= AGREES[1] * latency:
            return (
                f"the traced {direction.replace('_', ' with ')} is not the timed one: its kernels and copies take "
                f"{spent:.3g} ms, timed calls take {latency:.3g} ms"
            )
    return ""


def _milliseconds(launched: Iterable[Launched]) -> float:
    """The time that kernels and copies took in all; a worker may say anything, and nonsense counts as none."""
    times = (one.device_ms for one in launched)
    return sum(time for time in times if time is not None and math.isfinite(time) and time > 0)


def _share(own: float, everything: float) -> float:
    return own / everything if everything > 0 else 0.0
