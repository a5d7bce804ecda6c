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
    """A side's latency in ``samples``, as ``timing.statistics.Latency`` has it.

    Attributes:
        median_ms: Median of the samples.
        low_ms: First quartile.
        high_ms: Third quartile.
        samples_ms: Raw samples, in the order of measurement.
        window_ms: Median of the judge's own clock around the same calls, including messages; an
            upper bound.
        behind_ms: For each sample, the time from the call's end until the host had seen the whole
            device idle.
    """

    median_ms: int | float
    low_ms: int | float
    high_ms: int | float
    samples_ms: list[int | float]


class Baseline(TypedDict, total=False):
    """A baseline in ``baselines``.

    Attributes:
        forward_ms: Median latency of a forward.
        forward_backward_ms: Median latency of a forward with backward.
        speedup: By direction, the median of paired ratios with its 95 % interval: ratio, low, high.
        prepare_s: Compile time in seconds, possibly shortened by caches.
        note: Oddity of this baseline.
        failure: Why it was not timed.
        kept_from: Name of the record that the medians come from.
    """

    forward_ms: int | float
    forward_backward_ms: int | float
    speedup: dict[str, tuple[int | float, int | float, int | float]]
    prepare_s: int | float
    note: str
    failure: str
    kept_from: str


class Certificate(TypedDict):
    """A direction in ``certified``.

    Attributes:
        calls: Number of calls in a short window; a long one has twice as many.
        candidate_ms: Time of a candidate's call, by the judge's clock.
        at_least_ms: Lower bound on that time.
        eager_ms: Time of a call of eager PyTorch, by the same clock.
        resolution_ms: Smallest distinguishable time.
    """

    calls: int
    candidate_ms: int | float
    at_least_ms: int | float
    eager_ms: int | float
    resolution_ms: int | float


class Floor(TypedDict, total=False):
    """A direction in ``floor``.

    Attributes:
        bytes: Bytes that a call must move.
        flops: Floating-point operations of matrix products.
        floor_ms: The least time for both, if they overlap completely.
        bound: The one of the two that takes this time: ``bytes`` or ``flops``.
        intensity: Flops for each byte; None if a call moves nothing.
        share: Part of this speed that the candidate reaches: share, low, high.
    """

    bytes: int | float
    flops: int | float
    floor_ms: int | float
    bound: str
    intensity: int | float | None
    share: tuple[int | float, int | float, int | float]


class ShortCall(TypedDict, total=False):
    """A mode in ``modes``.

    Attributes:
        candidate_ms: Time of a candidate's call.
        eager_ms: Time of a call of eager PyTorch.
        overhead_ms: Time of an empty call.
        failure: Why this mode was not measured.
    """

    candidate_ms: int | float | None
    eager_ms: int | float | None
    overhead_ms: int | float | None
    failure: str


class Around(TypedDict, total=False):
    """The GPU ``before`` or ``after`` timing: the fields of a ``Reading`` that decisions depend on.

    Attributes:
        max_sm_mhz: Highest clock of the multiprocessors.
        power_limit_w: Enforced power limit, in watts.
        other_pids: Processes of others that compute on the GPU; None if they are unknown.
        strangers: Minimum number of processes of others.
    """

    max_sm_mhz: int | float | None
    power_limit_w: int | float | None
    other_pids: list[int] | None
    strangers: int


class DeviceState(TypedDict, total=False):
    """The value of ``device_state``.

    Attributes:
        before: State before timing.
        during: Ranges of clocks, power and temperature while timing.
        after: State after timing.
        flags: Instabilities, with remedies.
    """

    before: Around
    during: dict[str, Any]
    after: Around
    flags: list[str]


class KernelBench(TypedDict, total=False):
    """The value of ``kernelbench``.

    Attributes:
        correct: Whether ``torch.allclose`` holds in all trials.
        tolerance: Its ``atol`` and ``rtol``.
        error: The smallest tolerance that would do; None if none does.
        trials: Number of trials.
        runtime_ms: Mean time of a candidate's call.
        eager_ms: Mean time of a call of eager PyTorch.
        speedup: Ratio of these means.
    """

    correct: bool
    tolerance: int | float
    error: int | float | None
    trials: int
    runtime_ms: int | float
    eager_ms: int | float
    speedup: int | float


class Tf32(TypedDict, total=False):
    """The value of ``tf32``.

    Attributes:
        products: Kinds of float32 products in the reference: ``matmul``, ``convolution``.
        allowed: Kinds for which TF32 was allowed.
        eager: Precision class in which eager ran, by its error; None if it was not measured.
    """

    products: list[str]
    allowed: list[str]
    eager: str | None


class Policy(TypedDict, total=False):
    """The value of ``policy`` (see ``run_config``).

    Attributes:
        forward_only: Whether gradients were left out.
        timeout_s: Time limit for running, in seconds.
        build_timeout_s: Time limit for building, in seconds.
        timing: False if a GPU was not timed.
        require_confinement: Whether a missing layer of confinement was refused.
        baselines: Chosen baselines.
        precision: ``relaxed`` for the tolerances of torch's own tests.
        rules: Rules with a mode other than the default.
        refused: Rules that were enforced, in records of older versions.
        replay: True for a repeated evaluation.
        preset: Chosen preset, such as ``kernelbench``.
        tf32: ``allow`` or ``forbid``.
        compat: Whether code for an older torch may build.
        check: Architecture of ``--check``, such as ``sm_90``.
        exhaustive: Whether its launches ran in all orders.
        nvcc: Version of its nvcc; None without nvcc.
        trials: Chosen number of trials.
    """

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
    exhaustive: bool
    nvcc: str | None
    trials: int | None


class Change(TypedDict):
    """A part of the environment that a replay found changed.

    Attributes:
        then: Old value.
        now: New value.
    """

    then: Any
    now: Any


class Difference(Change):
    """A field that a replay found different.

    Attributes:
        then: Old value.
        now: New value.
        field: Name of the field.
    """

    field: str


class TensorSpread(TypedDict):
    """The distance between runs on the same inputs, for one tensor.

    Attributes:
        differing: Number of runs that differ from the first.
        l2: Largest relative L2 distance from it.
        max: Largest distance of an element, over the RMS.
    """

    differing: int
    l2: int | float
    max: int | float


class Spread(TypedDict, total=False):
    """The ``spread`` of a replay.

    Attributes:
        runs: Number of runs.
        tensors: The distance of each tensor.
        failure: Why it was not measured.
    """

    runs: int
    tensors: dict[str, TensorSpread]
    failure: str


class Replay(TypedDict, total=False):
    """The value of ``replay``.

    Attributes:
        of: Name of the original record.
        outcome: ``identical``, ``same verdict`` or ``different``.
        why: Reason for the outcome.
        environment: Changed parts of the environment.
        differences: Fields with another value.
        spread: Results on the same inputs.
    """

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
