"""Decides whether a solution's Triton kernels are interpreted, and what such a verdict is worth.

The decision depends on the solution's text alone, so nothing that a candidate does changes it.
"""

from __future__ import annotations

from dataclasses import replace

from harness.device.kernel_packages import INSTALL, is_installed
from harness.judge.process.candidate_stopped import CandidateStopped
from harness.records.record import EvaluationRecord, Status
from harness.scanning.kernel_languages import KernelLanguages, kernel_languages

#: The interpreter is slow. Two trials still show results that are kept from an earlier call.
INTERPRETED_TRIALS = 2
#: Statuses that an interpreted kernel may be the cause of.
_OF_A_KERNEL = frozenset({Status.WRONG_OUTPUT, Status.WRONG_GRADIENT, Status.RUNTIME_ERROR, Status.CRASHED})
_JUDGED_ON = "judge it on a GPU"


class Interpretation:
    """Decides how a device treats the languages of a solution's kernels.

    Args:
        text: The solution's source.
        device: ``cpu`` or ``cuda:N``.

    Attributes:
        is_interpreted: Whether Triton's interpreter runs its kernels.
    """

    def __init__(self, text: str, device: str):
        self._languages: KernelLanguages = kernel_languages(text)
        self._is_emulated = device == "cpu"
        self.is_interpreted = self._is_emulated and bool(self._languages.triton) and is_installed("triton")

    def check_packages(self) -> None:
        """Checks that this machine has the packages that the solution cannot do without.

        Raises:
            CandidateStopped: ``UNSUPPORTED``, if one is missing.
        """
        needs = dict(self._languages.needs)
        if self.is_interpreted:
            needs.setdefault("numpy", needs.get("triton", 0))
        for package, line in needs.items():
            if is_installed(package):
                continue
            place = f"line {line}: " if line else ""
            raise CandidateStopped(Status.UNSUPPORTED, f"{place}this machine has no {package}; {self._remedy(package)}")

    def _remedy(self, package: str) -> str:
        if not self._is_emulated:
            return INSTALL[package]
        if package in ("triton", "numpy"):
            return f"{_JUDGED_ON}, or let Triton's interpreter look for faults first: pip install triton numpy"
        return _JUDGED_ON

    def trials(self, trials: int) -> int:
        """Returns the number of trials to run, of those that a case has."""
        return min(trials, INTERPRETED_TRIALS) if self.is_interpreted else trials

    def told(self, record: EvaluationRecord) -> EvaluationRecord:
        """Returns a finished record that claims no more than an interpreter can tell."""
        if not self.is_interpreted:
            return record
        if record.status is Status.PASSED:
            words = f"interpreted: not judged: Triton's interpreter found no fault; {_JUDGED_ON}"
            return replace(record, status=Status.INTERPRETED, message="\n".join(filter(None, (words, record.message))))
        if record.status is Status.TIMEOUT:
            words = f"Triton's interpreter is too slow: choose smaller sizes (--set), raise --timeout, or {_JUDGED_ON}"
            return replace(record, status=Status.UNSUPPORTED, message=f"{words}\n{record.message}")
        if record.status in _OF_A_KERNEL:
            return replace(record, message=f"{record.message}\nnote: Triton's interpreter ran its kernels")
        return record
