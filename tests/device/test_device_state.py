"""Tests the flags about a GPU's state during timing; a stand-in replaces NVML."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from harness.device import device_state
from harness.device.device_state import DeviceWatch, Reading, clock_state, flags_of, nvml_uuid, throttle_words

UUID = "5c2d4b6e-1111-2222-3333-0123456789ab"
NO_PROCESS = 1_000_000_000  # no kernel gives a process an id as large: a small one may be a child of the tests
CALM = Reading(
    sm_mhz=1980,
    memory_mhz=3201,
    max_sm_mhz=1980,
    power_w=420.0,
    power_limit_w=700.0,
    temperature_c=48,
    slowdown_margin_c=39,
    throttle=(),
    is_idle=False,
    other_pids=(),
    utilisation_percent=97,
)
IDLE = replace(CALM, sm_mhz=345, is_idle=True, utilisation_percent=0)


class NVMLError(Exception):
    """As pynvml's: what its functions raise."""


class Nvml(ModuleType):
    """Stands for the module ``pynvml`` and the driver behind it; a value that is an exception is raised."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_TEMPERATURE_GPU, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 0, 1

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.asked: list[str] = []
        self.clocks = {1: 1980, 2: 3201}
        self.values: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlDeviceGetHandleByUUID": "handle",
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetPowerUsage": 420_500,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetTemperature": 48,
            "nvmlDeviceGetTemperatureThreshold": 87,
            "nvmlDeviceGetCurrentClocksEventReasons": 0,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=os.getpid())],
        }

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        return self.clocks[kind]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in vars(self).get("values", {}):
            raise AttributeError(name)

        def function(*arguments: Any) -> Any:
            self.asked += [argument for argument in arguments if isinstance(argument, str)]
            value = self.values[name]
            if isinstance(value, Exception):
                raise value
            return value

        return function


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    fake = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=UUID))
    return fake


def opened(own_pids: Collection[int] = ()) -> DeviceWatch:
    watch = DeviceWatch.open(0, own_pids)
    assert watch is not None
    return watch


def test_a_reading_has_the_units_it_promises(nvml: Nvml) -> None:
    expected = replace(CALM, power_w=420.5)
    assert opened().read() == expected
    assert nvml.asked[0] == f"GPU-{UUID}"


@pytest.mark.parametrize("given", [UUID, f"GPU-{UUID}"])
def test_both_forms_of_a_uuid_are_understood(given: str) -> None:
    assert nvml_uuid(given) == f"GPU-{UUID}"


def test_what_a_virtual_machine_does_not_say_is_unknown(nvml: Nvml) -> None:
    for name in nvml.values:
        if name not in ("nvmlInit", "nvmlDeviceGetHandleByUUID"):
            nvml.values[name] = NVMLError("Not Supported")
    reading = opened().read()
    assert reading == Reading(sm_mhz=1980, memory_mhz=3201)
    summary = opened().summary()
    assert summary["flags"] == []
    assert clock_state(summary) == "smunknown,powerunknown"


def test_an_older_nvml_is_asked_by_its_own_names(nvml: Nvml) -> None:
    del nvml.values["nvmlDeviceGetCurrentClocksEventReasons"]
    nvml.values["nvmlDeviceGetCurrentClocksThrottleReasons"] = 0x4 | 0x1
    nvml.values["nvmlDeviceGetMarginTemperature"] = 3
    reading = opened().read()
    assert (reading.throttle, reading.is_idle, reading.slowdown_margin_c) == (("software power cap",), True, 3)


def test_other_users_are_told_from_our_own(nvml: Nvml) -> None:
    worker, stranger, later = NO_PROCESS, NO_PROCESS + 1, NO_PROCESS + 2
    listed = [SimpleNamespace(pid=pid) for pid in (os.getpid(), worker, stranger, later)]
    nvml.values["nvmlDeviceGetComputeRunningProcesses"] = listed
    own = {worker}
    watch = opened(own)
    assert watch.read().other_pids == (stranger, later)
    own.add(later)  # a worker that has started since
    assert watch.read().other_pids == (stranger,)
    nvml.values["nvmlDeviceGetComputeRunningProcesses"] = listed[1:]  # as the host counts them, seen in a container
    assert opened().read().other_pids is None
    assert opened().other_users() == "2 other processes used the GPU, by the host's count"
    assert opened({NO_PROCESS + number for number in range(7, 10)}).other_users() == ""  # they may be ours


def test_what_our_own_have_started_is_no_stranger(nvml: Nvml) -> None:
    with subprocess.Popen(["sleep", "100"]) as child:
        listed = [SimpleNamespace(pid=pid) for pid in (os.getpid(), child.pid, os.getppid())]
        nvml.values["nvmlDeviceGetComputeRunningProcesses"] = listed
        assert opened().read().other_pids == (os.getppid(),)
        child.kill()


def test_other_users_count_from_the_beginning_of_a_series(nvml: Nvml) -> None:
    ours = [SimpleNamespace(pid=os.getpid())]
    many = [*ours, *(SimpleNamespace(pid=NO_PROCESS + number) for number in range(9))]
    nvml.values["nvmlDeviceGetComputeRunningProcesses"] = many
    watch = opened()
    watch.begin()
    nvml.values["nvmlDeviceGetComputeRunningProcesses"] = ours
    assert watch.other_users().endswith("1000000007, ... also used the GPU")
    watch.begin()
    assert watch.other_users() == ""
    nvml.values["nvmlDeviceGetComputeRunningProcesses"] = many[:2]
    assert watch.other_users() == "process 1000000000 also used the GPU"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda fake, patch: patch.setitem(sys.modules, "pynvml", None), "nvidia-ml-py is missing"),
        (lambda fake, patch: fake.values.update(nvmlInit=NVMLError("Driver Not Loaded")), "Driver Not Loaded"),
        (lambda fake, patch: fake.values.update(nvmlDeviceGetHandleByUUID=NVMLError("Not Found")), "Not Found"),
        (lambda fake, patch: patch.setattr(torch.cuda, "is_available", lambda: False), "torch finds no such GPU"),
        (lambda fake, patch: patch.setattr(torch.cuda, "device_count", lambda: 0), "torch finds no such GPU"),
    ],
)
def test_without_nvml_nothing_is_watched_and_the_reason_is_there(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch, spoil: Callable[..., None], words: str
) -> None:
    assert DeviceWatch.why_not(0) == ""
    spoil(nvml, monkeypatch)
    assert DeviceWatch.open(0) is None
    assert words in DeviceWatch.why_not(0)


def test_a_series_is_summed_up(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(device_state.time, "monotonic", lambda: now)
    watch = opened()
    for clock, power, step in ((1980, 500_000, 0.0), (1500, 700_000, 0.01), (1800, 650_000, 0.06), (1710, 1, 0.051)):
        nvml.clocks[1], nvml.values["nvmlDeviceGetPowerUsage"] = clock, power
        nvml.values["nvmlDeviceGetCurrentClocksEventReasons"] = 0x4 if clock == 1800 else 0
        now += step
        watch.sample()
    nvml.values["nvmlDeviceGetTemperature"] = 61
    summary = watch.summary()
    assert summary["during"] == {
        "readings": 3,  # the second came too soon
        "sm_mhz": {"min": 1710, "median": 1800, "max": 1980},
        "max_power_w": 650.0,
        "max_temperature_c": 48,
        "throttle": ["software power cap"],
    }
    assert (summary["before"]["temperature_c"], summary["after"]["temperature_c"]) == (48, 61)
    assert [flag.partition(":")[0] for flag in summary["flags"]] == [
        "the GPU was throttled by power (software power cap)",
        "the SM clock varied between 1710 and 1980 MHz while the GPU was busy",
    ]
    assert "700 W" in summary["flags"][0]
    assert clock_state(json.loads(json.dumps(summary))) == "sm1980,power700W"


def test_without_readings_there_are_no_figures(nvml: Nvml) -> None:
    during = opened().summary()["during"]
    assert (during["readings"], during["sm_mhz"], during["max_power_w"], during["throttle"]) == (0, None, None, [])
    assert clock_state({}) == "smunknown,powerunknown"


def test_bits_become_words() -> None:
    assert throttle_words(0x1) == ()
    assert throttle_words(0x1 | 0x40 | 0x4) == ("software power cap", "hardware thermal slowdown")
    assert throttle_words(0x4000 | 0x20) == ("software thermal slowdown", "reason 0x4000")


@pytest.mark.parametrize(
    ("during", "beginnings"),
    [
        ([CALM] * 3, []),
        ([CALM, replace(CALM, sm_mhz=1890), IDLE], []),  # 4.5 %, and an idle GPU's clock says nothing
        ([CALM, replace(CALM, sm_mhz=1875)], ["the SM clock varied between 1875 and 1980 MHz"]),
        ([CALM, replace(CALM, sm_mhz=600, utilisation_percent=0)], []),
        ([CALM, replace(CALM, sm_mhz=345, is_idle=True)], []),
        ([replace(CALM, sm_mhz=1790)] * 2, []),
        ([replace(CALM, sm_mhz=1755)] * 2, ["the SM clock never exceeded 1755 MHz, although the GPU allows 1980"]),
        ([replace(CALM, sm_mhz=1755), CALM], ["the SM clock varied"]),
        ([replace(CALM, sm_mhz=1755, max_sm_mhz=None)], []),
        ([replace(CALM, throttle=("software power cap",))], ["the GPU was throttled by power (software power cap)"]),
        ([replace(CALM, throttle=("hardware power brake",))], ["the GPU was throttled by power"]),
        (
            [replace(CALM, throttle=("software thermal slowdown", "hardware thermal slowdown"))],
            ["the GPU was throttled by heat (software thermal slowdown, hardware thermal slowdown)"],
        ),
        ([replace(CALM, throttle=("hardware slowdown",))], ["the GPU was throttled by its hardware"]),
        ([replace(CALM, throttle=("applications clocks setting",))], []),
        ([replace(CALM, other_pids=(77,)), replace(CALM, other_pids=(12, 77))], ["processes 12, 77 also used the GPU"]),
        ([replace(CALM, other_pids=(77,))], ["process 77 also used the GPU"]),
        ([replace(CALM, slowdown_margin_c=5)], []),
        ([replace(CALM, slowdown_margin_c=4)], ["the GPU came within 4 C"]),
        ([Reading()], []),
        ([], []),
    ],
)
def test_flags_follow_from_readings(during: list[Reading], beginnings: list[str]) -> None:
    flags = flags_of(IDLE, during, IDLE)
    assert len(flags) == len(beginnings), flags
    for flag, beginning in zip(flags, beginnings, strict=True):
        assert flag.startswith(beginning)
        assert flag.rpartition(": ")[2], "what to do"


def test_what_is_around_a_series_counts_for_neighbours_and_heat_alone() -> None:
    hot = replace(IDLE, other_pids=(9,), slowdown_margin_c=2, throttle=("software power cap",), sm_mhz=100)
    assert [flag.split(" ")[0] for flag in flags_of(hot, [CALM], CALM)] == ["process", "the"]
    assert flags_of(IDLE, [CALM], replace(CALM, throttle=("software power cap",))) == []
