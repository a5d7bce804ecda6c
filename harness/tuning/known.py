"""Finds the settings that the store has already judged, so that a search goes on from there."""

from __future__ import annotations

import math
from typing import NamedTuple

from harness.device.environment import code_digest
from harness.records.record import EvaluationRecord, Status
from harness.records.store import Store
from harness.rendering.stamp import parse_stamp
from harness.tuning.results import cost_of
from harness.tuning.space import Point
from harness.tuning.template import Searched

#: Settings of records that cannot answer now, such as those of an older harness, to judge again.
MOST_OLDER = 3


class Known(NamedTuple):
    """Settings that the store has records of, the fastest first.

    Attributes:
        answered: All that this harness has judged on this kind of device: the store answers for
            them, unless it was asked for another case or other rules.
        older: The fastest few of all others.
    """

    answered: list[Point]
    older: list[Point]


def known_points(store: Store, searched: Searched, device: str) -> Known:
    """Returns the settings that the store has records of.

    Args:
        store: The store.
        searched: The template with its space.
        device: ``cpu`` or ``cuda:N``.

    Raises:
        StoreError: The store cannot be read.
    """
    kind, code = device.partition(":")[0], code_digest()
    current: dict[Point, float] = {}
    older: dict[Point, float] = {}
    points: dict[str, Point | None] = {}
    for record in store.records(searched.declaration.problem):
        if record.digest not in points:
            points[record.digest] = _point(store, searched, record.digest)
        point = points[record.digest]
        if point is None:
            continue
        is_current = record.environment.get("harness_code") == code and record.device.partition(":")[0] == kind
        (current if is_current else older)[point] = _order(record)
    best = [one for one in sorted(older, key=older.__getitem__) if older[one] < math.inf and one not in current]
    return Known(sorted(current, key=current.__getitem__), best[:MOST_OLDER])


def _order(record: EvaluationRecord) -> float:
    cost = cost_of(record) if record.status is Status.PASSED else None
    return math.inf if cost is None else cost


def _point(store: Store, searched: Searched, digest: str) -> Point | None:
    """Returns the setting of a recorded solution; None if it is none of this space."""
    stamp = parse_stamp(store.source(digest) or "")
    if stamp is None or not stamp.intact or stamp.template != searched.declaration.template:
        return None
    return searched.space.point(stamp.parameters)
