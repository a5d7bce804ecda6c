"""What a speed is to be seen against: the device's state while it was measured, and the speed of light."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from harness.device.device_state import DeviceWatch
from harness.judge.timing.minimal_work import kept_work
from harness.judge.timing.paired_timing import CANDIDATE
from harness.project.problems import Problem
from harness.timing.ceilings import Ceilings
from harness.timing.floor import flags, floor_fields


class Conditions:
    """Made before a candidate runs, asked after it was timed.

    Args:
        problem: The problem.
        constants: The case's constants.
        device: The device.
        ceilings: The device's; None where they have not been measured.
        folder: Where the problem's work is kept.
        own_pids: Processes of ours that may be on the GPU.
    """

    def __init__(
        self,
        problem: Problem,
        constants: dict[str, Any],
        device: torch.device,
        ceilings: Ceilings | None,
        folder: Path,
        own_pids: Collection[int],
    ):
        self._precision = problem.precision
        self._ceilings = ceilings
        self._work = kept_work(folder, problem, constants) if ceilings is not None else None
        self._watch = None if device.type == "cpu" else DeviceWatch.open(device.index or 0, own_pids)

    def look(self) -> None:
        """See to the device, between timed calls."""
        if self._watch is not None:
            self._watch.sample()

    def begin(self) -> None:
        """A series begins, in which strangers count."""
        if self._watch is not None:
            self._watch.begin()

    def strangers(self) -> str:
        """Who else computes on the device, or did in the series, in words; empty where nobody does that is known."""
        return "" if self._watch is None else self._watch.strangers()

    def fields(self, samples: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The fields of a record, and a sentence for everything that is odd.

        Args:
            samples: A record's samples; only directions in which the candidate's speed counts have a share of the
                speed of light.
        """
        found: dict[str, Any] = {}
        if self._work is not None and self._ceilings is not None and samples:
            counted = {name: sides[CANDIDATE]["samples_ms"] for name, sides in samples.items() if CANDIDATE in sides}
            found["floor"] = floor_fields(self._work, self._ceilings, self._precision, counted)
        if self._watch is not None:
            found["device_state"] = self._watch.summary()
        return found, [*flags(found.get("floor", {})), *found.get("device_state", {}).get("flags", ())]
