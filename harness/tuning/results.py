"""The results of a search: a trial for each setting, and the file that keeps them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.records.kernels import CompiledKernel, KernelLimits
from harness.records.record import EvaluationRecord, Status
from harness.rendering.values import Value
from harness.report.speed_comparison import DIRECTIONS, direction_of
from harness.system.files import read_regular
from harness.system.text import one_line

#: The status of a setting whose template could not be rendered.
NOT_RENDERED = "NOT_RENDERED"
#: The status of a setting that was built and did not run, because its kernels exceed a limit of the template.
NOT_RUN = "NOT_RUN"
#: What a search can hold against time.
OBJECTIVES = ("error", "memory")
MOST_BYTES = 1 << 30
FORMAT = "kernel-harness tune 1"


@dataclass(frozen=True)
class Trial:
    """The result of one setting.

    Attributes:
        settings: The value of every parameter.
        status: The status of the worst case, or ``NOT_RENDERED`` or ``NOT_RUN``.
        cost: Time as a share of eager's, the geometric mean over the cases; None if the setting
            failed or was not timed.
        time_ms: Median time in milliseconds; None without one, or with several cases.
        error: The largest error of a tensor over its budget; None if the setting failed.
        peak_bytes: The most device memory that a call held, in bytes; None if that is not known.
        records: Names of the records.
        message: Why it failed, passed without a time, or was timed in fewer pairs; else empty.
        nvcc: The most registers, ``shared_bytes`` and ``spilled_bytes`` that nvcc gave one of its kernels,
            by the fields of ``KernelLimits``; empty if that is not known.
        is_stored: Whether the store had all of its records before the search began.
    """

    settings: Mapping[str, Value]
    status: str
    cost: float | None = None
    time_ms: float | None = None
    records: tuple[str, ...] = ()
    message: str = ""
    is_stored: bool = False
    error: float | None = None
    peak_bytes: int | None = None
    nvcc: Mapping[str, int] = field(default_factory=dict)

    def objective(self, name: str) -> float | None:
        """Returns the value of an objective beside time, ``error`` or ``memory``; None if it is not known."""
        return self.error if name == "error" else self.peak_bytes

    @property
    def has_passed(self) -> bool:
        """True if the setting passed on every case."""
        return self.status == Status.PASSED


def trial_of(settings: Mapping[str, Value], records: Sequence[EvaluationRecord], began_at: str) -> Trial:
    """Returns the trial of a setting.

    Args:
        settings: The value of every parameter.
        records: Its records, one for each case.
        began_at: When the search began, as ``created_at`` of a record has it.
    """
    failed = next((record for record in records if record.status is not Status.PASSED), None)
    names = tuple(record.record for record in records)
    is_stored = all(record.created_at < began_at for record in records)
    if failed is not None:
        message = failed.message.strip().partition("\n")[0]
        return Trial(settings, str(failed.status), records=names, message=message, is_stored=is_stored)
    costs = [cost_of(record) for record in records]
    known = [cost for cost in costs if cost is not None]
    cost = statistics.geometric_mean(known) if known and len(known) == len(costs) else None
    time_ms = _time_ms(records[0]) if len(records) == 1 else None
    shares = [report.share for record in records for report in (*record.outputs, *record.gradients)]
    peaks = [peaks["candidate"] for record in records for peaks in record.peak_bytes.values() if "candidate" in peaks]
    return Trial(
        settings,
        str(Status.PASSED),
        cost,
        time_ms,
        names,
        _about_speed(records),
        is_stored=is_stored,
        error=max((share for share in shares if share is not None), default=None),
        peak_bytes=max(peaks, default=None),
    )


def most_of(kernels: Sequence[CompiledKernel]) -> dict[str, int]:
    """Returns the most that one of the kernels takes, by the fields of ``KernelLimits``; empty without kernels."""
    names = [one.name for one in fields(KernelLimits)]
    return {name: max(getattr(kernel, name) for kernel in kernels) for name in names} if kernels else {}


def _about_speed(records: Sequence[EvaluationRecord]) -> str:
    """The judge's note about a speed that it did not measure, or about fewer pairs; empty if there is none."""
    lines = (line.removeprefix("note: ") for record in records for line in record.message.splitlines())
    return next((line for line in lines if "speed" in line), "")


def cost_of(record: EvaluationRecord) -> float | None:
    """Returns the time of a record as a share of eager's in the same pairs; None if it has no such time."""
    speedup = (record.speedup or {}).get(direction_of(record))
    return 1 / speedup if speedup is not None and speedup > 0 and math.isfinite(speedup) else None


def _time_ms(record: EvaluationRecord) -> float | None:
    return record.forward_ms if direction_of(record) == DIRECTIONS[0] else record.forward_backward_ms


@dataclass(frozen=True)
class Recorded:
    """A finished search, as its file has it.

    Attributes:
        template: Name of the template.
        problem: Name of the problem.
        device: What measured it, in words.
        cases: Names of the cases.
        names: Names of the parameters.
        start: The settings of the template's default variant.
        trials: The trials, in the order in which they were finished.
        more: Further figures for readers; not read back.
    """

    template: str
    problem: str
    device: str
    cases: tuple[str, ...]
    names: tuple[str, ...]
    start: Mapping[str, Value]
    trials: tuple[Trial, ...]
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Returns the search as one JSON object."""
        told = {
            "format": FORMAT,
            "template": self.template,
            "problem": self.problem,
            "device": self.device,
            "cases": list(self.cases),
            "parameters": list(self.names),
            "start": dict(self.start),
            **self.more,
            "trials": [
                {
                    "settings": dict(one.settings), "status": one.status, "cost": one.cost, "time_ms": one.time_ms,
                    "error": one.error, "peak_bytes": one.peak_bytes, "records": list(one.records),
                    "message": one.message, "nvcc": dict(one.nvcc),
                }
                for one in self.trials
            ],
        }  # fmt: skip
        return json.dumps(told, allow_nan=False)


def read_recorded(path: Path) -> Recorded:
    """Reads the file of a search.

    Raises:
        UsageError: The file cannot be read, is no such file, or a value in it is wrong.
    """
    where = one_line(str(path))
    try:
        told = json.loads(read_regular(path, MOST_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read {where}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON ({error}); write one with `tune TEMPLATE --json -o FILE`") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise UsageError(f"{where} is no file of a search; write one with `tune TEMPLATE --json -o FILE`")
    try:
        names = _texts(told["parameters"])
        trials = tuple(_trial(one, names, number) for number, one in enumerate(_list(told["trials"]), start=1))
        return Recorded(
            template=_text(told["template"]),
            problem=_text(told["problem"]),
            device=_text(told["device"]),
            cases=_texts(told["cases"]),
            names=names,
            start=_settings(told["start"], names),
            trials=trials,
        )
    except KeyError as error:
        raise UsageError(f"{where}: {error} is missing") from None
    except ValueError as error:
        raise UsageError(f"{where}: {one_line(str(error))}") from None


def _trial(told: object, names: tuple[str, ...], number: int) -> Trial:
    try:
        if not isinstance(told, dict):
            raise ValueError("it is not an object")
        status, cost = _text(told["status"]), _positive(told.get("cost"), "cost")
        if cost is not None and status != Status.PASSED:
            raise ValueError(f"it has a cost and the status {status}")
        return Trial(
            settings=_settings(told["settings"], names),
            status=status,
            cost=cost,
            time_ms=_positive(told.get("time_ms"), "time_ms"),
            records=_texts(told.get("records", [])),
            message=_text(told.get("message", "")),
        )
    except KeyError as error:
        raise ValueError(f"trial {number}: {error} is missing") from None
    except ValueError as error:
        raise ValueError(f"trial {number}: {error}") from None


def _settings(told: object, names: tuple[str, ...]) -> dict[str, Value]:
    if not isinstance(told, dict) or told.keys() != set(names):
        raise ValueError(f"the settings must have exactly the parameters {', '.join(names)}")
    for name, value in told.items():
        if not isinstance(value, bool | int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"the value of {name} must be a finite number, a text, true or false")
    return {name: told[name] for name in names}


def _positive(value: object, name: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a positive number or null, not {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be a positive number or null")
    return number


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]!r} must be a text")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("trials must be a list")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("parameters, cases and records must be lists of names")
    return tuple(value)
