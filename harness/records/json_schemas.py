"""Defines the schemas of the JSON objects inside a record: their keys and types.

Records also come from files and stores of others. ``EvaluationRecord.from_json`` checks them
against these schemas, so that no reader meets a figure of another type. A record may have further
keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from harness.records.rules import Mode

#: The most samples of a series; the harness records fewer. More would overflow the binomial
#: probabilities of ``timing.statistics.median_interval``.
MOST_SAMPLES = 1000
#: The latencies and time limits that a computation can work with, in milliseconds and seconds.
_LEAST, _MOST = 1e-9, 1e12
#: The deepest nesting of a record. The harness writes records of a third of this depth.
MOST_DEPTH = 50


class _LatencyExtra(TypedDict, total=False):
    window_ms: int | float
    behind_ms: list[int | float]


class Latency(_LatencyExtra):
    """A side's latency in ``samples``, as ``timing.statistics.Latency`` has it."""

    median_ms: int | float
    low_ms: int | float
    high_ms: int | float
    samples_ms: list[int | float]


class Baseline(TypedDict, total=False):
    """A baseline in ``baselines``."""

    forward_ms: int | float
    forward_backward_ms: int | float
    speedup: dict[str, tuple[int | float, int | float, int | float]]
    prepare_s: int | float
    note: str
    failure: str
    kept_from: str


class Certificate(TypedDict):
    """A direction in ``certified``."""

    calls: int
    candidate_ms: int | float
    at_least_ms: int | float
    eager_ms: int | float
    resolution_ms: int | float


class Floor(TypedDict, total=False):
    """A direction in ``floor``."""

    bytes: int | float
    flops: int | float
    floor_ms: int | float
    bound: str
    intensity: int | float | None
    share: tuple[int | float, int | float, int | float]


class ShortCall(TypedDict, total=False):
    """A mode in ``modes``."""

    candidate_ms: int | float | None
    eager_ms: int | float | None
    overhead_ms: int | float | None
    failure: str


class Around(TypedDict, total=False):
    """The GPU ``before`` or ``after`` timing: the fields of a ``Reading`` that decisions depend on."""

    max_sm_mhz: int | float | None
    power_limit_w: int | float | None
    other_pids: list[int] | None
    strangers: int


class DeviceState(TypedDict, total=False):
    """The value of ``device_state``."""

    before: Around
    during: dict[str, Any]
    after: Around
    flags: list[str]


class KernelBench(TypedDict, total=False):
    """The value of ``kernelbench``."""

    correct: bool
    tolerance: int | float
    error: int | float | None
    trials: int
    runtime_ms: int | float
    eager_ms: int | float
    speedup: int | float


class Tf32(TypedDict, total=False):
    """The value of ``tf32``."""

    products: list[str]
    allowed: list[str]
    eager: str | None


class Policy(TypedDict, total=False):
    """The value of ``policy`` (see ``run_config``)."""

    forward_only: bool
    timeout_s: int | float | None
    build_timeout_s: int | float | None
    timing: bool
    require_confinement: bool
    baselines: list[str]
    precision: str
    rules: dict[str, Mode]
    refused: list[str]
    replay: bool
    preset: str
    tf32: str
    compat: bool
    check: str
    nvcc: str | None
    trials: int | None


class Change(TypedDict):
    """A part of the environment that a replay found changed."""

    then: Any
    now: Any


class Difference(Change):
    """A field that a replay found different."""

    field: str


class TensorSpread(TypedDict):
    """The distance between runs on the same inputs, for one tensor."""

    differing: int
    l2: int | float
    max: int | float


class Spread(TypedDict, total=False):
    """The ``spread`` of a replay."""

    runs: int
    tensors: dict[str, TensorSpread]
    failure: str


class Replay(TypedDict, total=False):
    """The value of ``replay``."""

    of: str
    outcome: str
    why: str
    environment: dict[str, Change]
    differences: list[Difference]
    spread: Spread


def check_depth(value: Any, deepest: int = MOST_DEPTH) -> None:
    """Checks that a JSON value is not nested so deeply that its readers would fail.

    Raises:
        ValueError: It is.
    """
    if not deepest:
        raise ValueError(f"the record is nested more than {MOST_DEPTH} levels deep")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_depth(inner, deepest - 1)


def check_samples(samples: Mapping[str, Mapping[str, Latency]]) -> None:
    """Checks that a comparison can compute with a record's latencies.

    Raises:
        ValueError: It cannot.
    """
    for direction, sides in samples.items():
        for name, side in sides.items():
            found: Sequence[float] = [side["median_ms"], side["low_ms"], side["high_ms"], *side["samples_ms"]]
            if not all(_LEAST <= one <= _MOST for one in found):
                raise ValueError(f"the record's samples of {direction} {name} are not latencies in milliseconds")
            if len(side["samples_ms"]) > MOST_SAMPLES:
                raise ValueError(f"the record's samples of {direction} {name} are more than {MOST_SAMPLES}")
        if len({len(side["samples_ms"]) for side in sides.values()}) > 1:
            raise ValueError(f"the record's samples of {direction} come in pairs, and some have no partner")


def check_policy(policy: Policy) -> None:
    """Checks that an evaluation can be repeated under a record's policy.

    Raises:
        ValueError: It cannot.
    """
    for limit in (policy.get("timeout_s"), policy.get("build_timeout_s")):
        if limit is not None and not 0 < limit < math.inf:
            raise ValueError(f"the record's time limit of {limit:g} s is none")
    trials = policy.get("trials")
    if trials is not None and trials < 1:
        raise ValueError(f"the record's {trials} trials are no number of trials")
