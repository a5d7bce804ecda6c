"""Records a GPU's clocks, power and temperature during timing, and flags what is unstable.

The data comes from NVML (package ``nvidia-ml-py``). The harness works without it, and this module
never changes a setting of the device.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import statistics
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import DeviceError
from harness.system.processes import descends_from

#: Minimum interval between readings of a series, in seconds. A reading takes about a millisecond.
INTERVAL_S = 0.05
#: Maximum number of processes on the GPU that a message names.
MOST_NAMED = 8
#: Tolerated spread of SM clocks while the GPU is busy, as a share of the highest.
CLOCK_SPREAD = 0.05
#: An SM clock that stays below this share of its maximum is held down.
LOW_CLOCK = 0.9
#: Distance from the slowdown temperature that raises a flag, in degrees Celsius.
MARGIN_C = 5
#: Bits of ``nvmlDeviceGetCurrentClocksEventReasons``, from nvml.h.
IDLE = 0x1
REASONS = {
    0x2: "applications clocks setting",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
    0x200: "board limit",
    0x400: "reliability",
}
_POWER = (REASONS[0x4], REASONS[0x80], REASONS[0x200])
_HEAT = (REASONS[0x20], REASONS[0x40])
_EITHER = (REASONS[0x8],)


@dataclass(frozen=True)
class Reading:
    """The state of a GPU at one moment.

    A value is None if the driver does not report it, as in many virtual machines.

    Attributes:
        sm_mhz: Clock of the multiprocessors.
        memory_mhz: Clock of the memory.
        max_sm_mhz: Highest clock of the multiprocessors.
        power_w: Power draw, in watts.
        power_limit_w: Enforced power limit, in watts.
        temperature_c: Temperature, in degrees Celsius.
        slowdown_margin_c: Degrees to the temperature at which the GPU slows down.
        throttle: Reasons for reduced clocks, as words of ``REASONS``. An idle GPU is not such a
            reason.
        is_idle: Whether the GPU has no work and lets its clocks sink.
        other_pids: Processes of others that compute on the GPU; None if they are unknown.
        strangers: Minimum number of processes of others. If they are unknown, it counts the
            processes beyond the harness's own number.
        utilisation_percent: Share of the last fraction of a second in which a kernel ran.
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    max_sm_mhz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    slowdown_margin_c: int | None = None
    throttle: tuple[str, ...] | None = None
    is_idle: bool | None = None
    other_pids: tuple[int, ...] | None = None
    strangers: int = 0
    utilisation_percent: int | None = None

    @property
    def is_busy(self) -> bool:
        """True unless a reading shows an idle GPU."""
        return self.is_idle is not True and self.utilisation_percent != 0


class DeviceWatch:
    """Reads the state of one GPU at the start, between timed calls and at the end.

    NVML stays initialised until the process ends. Starting it takes tens of milliseconds, and other
    code may use it.

    Args:
        nvml: The module ``pynvml``.
        handle: NVML's handle of the GPU.
        own_pids: Processes that belong to the harness, besides this one. Each reading looks at the
            collection again, so workers that start later may be added to it.
    """

    def __init__(self, nvml: Any, handle: Any, own_pids: Collection[int] = ()):
        self._nvml = nvml
        self._handle = handle
        self._own_pids = own_pids
        self._due_s = 0.0
        self._during: list[Reading] = []
        self._recent: list[Reading] = []
        self._before = self.read()

    @classmethod
    def open(cls, index: int, own_pids: Collection[int] = ()) -> DeviceWatch | None:
        """Starts to watch a GPU.

        Args:
            index: Index of the GPU among those that torch sees.
            own_pids: Processes that belong to the harness.

        Returns:
            The watch, or None if NVML is missing or does not know the GPU. ``why_not`` gives the
            reason.
        """
        try:
            return cls(*_connected(index), own_pids)
        except DeviceError:
            return None

    @staticmethod
    def why_not(index: int) -> str:
        """Returns why a GPU cannot be watched and what to do about it; empty if it can."""
        try:
            _connected(index)
        except DeviceError as error:
            return str(error)
        return ""

    def read(self) -> Reading:
        """Reads the current state, in about a millisecond."""
        nvml = self._nvml
        others, strangers = self._others()
        power, limit = self._ask("nvmlDeviceGetPowerUsage"), self._ask("nvmlDeviceGetEnforcedPowerLimit")
        temperature = self._ask(
            "nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV", arguments=(nvml.NVML_TEMPERATURE_GPU,)
        )
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        utilisation = self._ask("nvmlDeviceGetUtilizationRates")
        return Reading(
            sm_mhz=self._ask("nvmlDeviceGetClockInfo", arguments=(nvml.NVML_CLOCK_SM,)),
            memory_mhz=self._ask("nvmlDeviceGetClockInfo", arguments=(nvml.NVML_CLOCK_MEM,)),
            max_sm_mhz=self._ask("nvmlDeviceGetMaxClockInfo", arguments=(nvml.NVML_CLOCK_SM,)),
            power_w=None if power is None else power / 1e3,
            power_limit_w=None if limit is None else limit / 1e3,
            temperature_c=temperature,
            slowdown_margin_c=self._margin_c(temperature),
            throttle=None if reasons is None else throttle_words(reasons),
            is_idle=None if reasons is None else bool(reasons & IDLE),
            other_pids=others,
            strangers=strangers,
            utilisation_percent=None if utilisation is None else utilisation.gpu,
        )

    def sample(self) -> None:
        """Adds a reading to the series, at most one every ``INTERVAL_S``.

        The caller calls it between timed calls.
        """
        if time.monotonic() >= self._due_s:
            self._during.append(self.read())
            self._recent.append(self._during[-1])
            self._due_s = time.monotonic() + INTERVAL_S

    def begin(self) -> None:
        """Takes the first reading of a series, to which ``other_users`` looks back."""
        self._recent = [self.read()]

    def other_users(self) -> str:
        """Names the processes of others on the GPU since ``begin``; empty if none is known."""
        return _other_users_in([*self._recent, self.read()])

    def summary(self) -> dict[str, Any]:
        """Returns the device's state for a record (``EvaluationRecord.device_state``).

        It takes one more reading.

        Returns:
            ``before`` and ``after``, each with the values of a ``Reading``; ``during``, see
            ``during_of``; and ``flags``, see ``flags_of``.
        """
        after = self.read()
        return {
            "before": dataclasses.asdict(self._before),
            "during": during_of(self._during),
            "after": dataclasses.asdict(after),
            "flags": flags_of(self._before, self._during, after),
        }

    def _ask(self, *names: str, arguments: tuple[Any, ...] = ()) -> Any:
        """Calls the first of these functions that works with this NVML and driver.

        Returns:
            The function's result, or None if none of them works.
        """
        for name in names:
            function = getattr(self._nvml, name, None)
            if function is None:
                continue
            try:
                return function(self._handle, *arguments)
            except self._nvml.NVMLError:
                continue
        return None

    def _margin_c(self, temperature: int | None) -> int | None:
        margin: int | None = self._ask("nvmlDeviceGetMarginTemperature")
        if margin is not None or temperature is None:
            return margin
        # Before the Ada architecture, NVML gives the threshold instead.
        slowdown = self._nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        threshold: int | None = self._ask("nvmlDeviceGetTemperatureThreshold", arguments=(slowdown,))
        return None if threshold is None else threshold - temperature

    def _others(self) -> tuple[tuple[int, ...] | None, int]:
        """Returns the process ids of others, None if unknown, and their minimum number.

        Every process that this one or a worker started belongs to the harness. In a container, NVML
        may report the host's process ids. Then none of the harness's processes is among them,
        although this process holds GPU memory, and only their number is usable.
        """
        listed = self._ask("nvmlDeviceGetComputeRunningProcesses")
        if listed is None:
            return None, 0
        pids = {process.pid for process in listed}
        own = {os.getpid(), *self._own_pids}
        if pids and not pids & own:
            return None, max(0, len(pids) - len(own))
        others = tuple(sorted(pid for pid in pids - own if not descends_from(pid, own)))
        return others, len(others)


def throttle_words(bits: int) -> tuple[str, ...]:
    """Returns the words of clock event reasons, in the order of their bits.

    An idle GPU does not count as throttled.
    """
    known = [word for bit, word in REASONS.items() if bits & bit]
    unknown = bits & ~(IDLE | sum(REASONS))
    return (*known, *([f"reason {unknown:#x}"] if unknown else []))


def during_of(readings: Sequence[Reading]) -> dict[str, Any]:
    """Summarises the readings of a series.

    Returns:
        ``readings``, their number; ``sm_mhz`` with ``min``, ``median`` and ``max``, or None if no
        clock is known; ``max_power_w`` and ``max_temperature_c``, or None; ``throttle``, all words
        that occurred.
    """
    clocks = [reading.sm_mhz for reading in readings if reading.sm_mhz is not None]
    powers = [reading.power_w for reading in readings if reading.power_w is not None]
    temperatures = [reading.temperature_c for reading in readings if reading.temperature_c is not None]
    return {
        "readings": len(readings),
        "sm_mhz": {"min": min(clocks), "median": statistics.median(clocks), "max": max(clocks)} if clocks else None,
        "max_power_w": max(powers, default=None),
        "max_temperature_c": max(temperatures, default=None),
        "throttle": _words(readings),
    }


def flags_of(before: Reading, during: Sequence[Reading], after: Reading) -> list[str]:
    """Describes what is unstable about a series and what to do about it, in a sentence each.

    Args:
        before: State before the series.
        during: States between its calls, from which alone clocks and throttling are judged.
        after: State after the series.
    """
    around = (before, *during, after)
    return [*_throttle_flags(during), *_clock_flags(during), *_neighbour_flags(around), *_margin_flags(around)]


def clock_state(summary: dict[str, Any]) -> str:
    """Summarises the state of the clocks coarsely, as ``sm1980,power700W``.

    Times under different clock states do not compare.

    Args:
        summary: Result of ``DeviceWatch.summary``; empty without NVML.

    Returns:
        The highest SM clock, rounded to 10 MHz, and the power limit, rounded to 1 W; ``unknown``
        for a missing value.
    """
    before = summary.get("before", {})
    clock, limit = before.get("max_sm_mhz"), before.get("power_limit_w")
    words = "sm" + ("unknown" if clock is None else f"{round(clock, -1)}")
    return f"{words},power" + ("unknown" if limit is None else f"{limit:.0f}W")


def _words(readings: Iterable[Reading]) -> list[str]:
    return list(dict.fromkeys(word for reading in readings for word in reading.throttle or ()))


def _throttle_flags(during: Sequence[Reading]) -> list[str]:
    words = _words(during)
    limit = next((reading.power_limit_w for reading in during if reading.power_limit_w is not None), None)
    at = "" if limit is None else f" of {limit:.0f} W"
    remedies = (
        (
            _POWER,
            "power",
            f"compare only with times measured under the same power limit{at}, or raise the limit (nvidia-smi -pl)",
        ),
        (_HEAT, "heat", "let the GPU cool down, improve its cooling, and measure again"),
        (_EITHER, "its hardware, because of heat or power", "check cooling and power supply, and measure again"),
    )
    flags = []
    for kinds, cause, remedy in remedies:
        found = [word for word in words if word in kinds]
        if found:
            flags.append(f"the GPU was throttled by {cause} ({', '.join(found)}): {remedy}")
    return flags


def _clock_flags(during: Sequence[Reading]) -> list[str]:
    busy = [reading for reading in during if reading.is_busy and reading.sm_mhz is not None]
    clocks = [reading.sm_mhz for reading in busy if reading.sm_mhz is not None]
    if not clocks:
        return []
    low, high = min(clocks), max(clocks)
    flags = []
    if high - low > CLOCK_SPREAD * high:
        flags.append(
            f"the SM clock varied between {low} and {high} MHz while the GPU was busy: lock the clock if you "
            "may (nvidia-smi -lgc), and measure again"
        )
    most = max((reading.max_sm_mhz for reading in busy if reading.max_sm_mhz is not None), default=None)
    if most is not None and high < LOW_CLOCK * most:
        flags.append(
            f"the SM clock never exceeded {high} MHz, although the GPU allows {most}: find the cause "
            "(nvidia-smi -q -d CLOCK,PERFORMANCE), and remove a clock lock (nvidia-smi -rgc)"
        )
    return flags


def _neighbour_flags(around: Sequence[Reading]) -> list[str]:
    who = _other_users_in(around)
    return [f"{who}: end other programs on that GPU, or choose another GPU with --device"] if who else []


def _other_users_in(readings: Sequence[Reading]) -> str:
    """Names the processes of others on the GPU in these readings."""
    others = sorted({pid for reading in readings for pid in reading.other_pids or ()})
    if not others:
        count = max((reading.strangers for reading in readings), default=0)
        return f"{count} other processes used the GPU, by the host's count" if count else ""
    some = ", ".join(map(str, others[:MOST_NAMED])) + (", ..." if len(others) > MOST_NAMED else "")
    return f"process {some} also used the GPU" if len(others) == 1 else f"processes {some} also used the GPU"


def _margin_flags(around: Sequence[Reading]) -> list[str]:
    margins = [reading.slowdown_margin_c for reading in around if reading.slowdown_margin_c is not None]
    if not margins or min(margins) >= MARGIN_C:
        return []
    return [
        f"the GPU came within {max(0, min(margins))} C of the temperature at which it slows down: let it "
        "cool down, improve its cooling, and measure again"
    ]


def _connected(index: int) -> tuple[Any, Any]:
    """Initialises the module ``pynvml`` and finds its handle of a GPU by torch's index.

    Raises:
        DeviceError: There is no NVML, or it does not know the GPU.
    """
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        raise DeviceError(
            "the state of the GPU is not recorded: the package nvidia-ml-py is missing; install the packages "
            'for a GPU with pip install -e ".[gpu]"'
        ) from None
    import torch

    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        raise DeviceError(f"the state of cuda:{index} is not recorded: torch finds no such GPU")
    # CUDA_VISIBLE_DEVICES renumbers GPUs for torch only, so NVML needs the UUID.
    name = nvml_uuid(str(torch.cuda.get_device_properties(index).uuid))
    try:
        nvml.nvmlInit()
        return nvml, nvml.nvmlDeviceGetHandleByUUID(name)
    except nvml.NVMLError as error:
        raise DeviceError(f"the state of cuda:{index} is not recorded: NVML reports for {name}: {error}") from None


def nvml_uuid(uuid: str) -> str:
    """Returns a UUID as NVML expects it: with the prefix ``GPU-``, which torch omits."""
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
