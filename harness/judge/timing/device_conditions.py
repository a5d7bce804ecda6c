"""Reports the conditions of a measurement: the device's state and its speed of light."""

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
    """Watches the device while a candidate is timed, and describes the conditions afterwards.

    Args:
        problem: The problem.
        constants: The case's constants.
        device: The device.
        ceilings: The device's measured ceilings; None where they have not been measured.
        folder: Folder that caches the problem's minimal work.
        own_pids: Processes of the harness that may be on the GPU.

    Attributes:
        precision: The precision class that decides which rate counts.
    """

    def __init__(
        self,
        problem: Problem,
        constants: dict[str, Any],
        device: torch.device,
        *,
        ceilings: Ceilings | None,
        folder: Path,
        own_pids: Collection[int],
    ):
        self.precision = problem.precision
        self._ceilings = ceilings
        self._work = kept_work(folder, problem, constants) if ceilings is not None else None
        self._watch = None if device.type == "cpu" else DeviceWatch.open(device.index or 0, own_pids)

    def look(self) -> None:
        """Sample the device's state, between timed calls."""
        if self._watch is not None:
            self._watch.sample()

    def begin(self) -> None:
        """Begin a series; other processes on the device count from now on."""
        if self._watch is not None:
            self._watch.begin()

    def other_users(self) -> str:
        """Name the processes of others that used the device in the series; empty where none is known."""
        return "" if self._watch is None else self._watch.other_users()

    def fields(self, samples: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return record fields, and a sentence for each oddity.

        Args:
            samples: A record's samples. Only directions in which the candidate's speed counts get a
                share of the speed of light.
        """
        found: dict[str, Any] = {}
        if self._work is not None and self._ceilings is not None and samples:
            counted = {name: sides[CANDIDATE]["samples_ms"] for name, sides in samples.items() if CANDIDATE in sides}
            found["floor"] = floor_fields(self._work, self._ceilings, self.precision, counted)
        if self._watch is not None:
            found["device_state"] = self._watch.summary()
        return found, [*flags(found.get("floor", {})), *found.get("device_state", {}).get("flags", ())]
