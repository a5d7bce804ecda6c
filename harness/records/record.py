"""Defines the record of an evaluation: immutable, plain data that every module may import.

Errors are relative, without a unit. Times are in seconds if the name ends in ``_s``, and in
milliseconds if it ends in ``_ms``. ``None`` means unknown or not measured, never zero.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

from harness.records import json_schemas
from harness.records.json_values import converted, plain
from harness.records.kernels import Compilation, CopyUse, KernelUse

RECORD_VERSION = 1


class Status(enum.StrEnum):
    """The result of evaluating one candidate on one case."""

    PASSED = "PASSED"
    WRONG_OUTPUT = "WRONG_OUTPUT"
    WRONG_GRADIENT = "WRONG_GRADIENT"
    NO_GRADIENT = "NO_GRADIENT"
    BUILD_ERROR = "BUILD_ERROR"
    LOAD_ERROR = "LOAD_ERROR"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    TIMEOUT = "TIMEOUT"
    CRASHED = "CRASHED"
    CHEATED = "CHEATED"
    UNSAFE = "UNSAFE"
    UNSUPPORTED = "UNSUPPORTED"
    INTERPRETED = "INTERPRETED"
    HARNESS_ERROR = "HARNESS_ERROR"


class PrecisionClass(enum.StrEnum):
    """Mantissa classes, best first (see docs/numerics.md)."""

    FP32 = "fp32"
    TEN_BIT = "10-bit"
    SEVEN_BIT = "7-bit"


class FurtherDraw(enum.StrEnum):
    """Additional draws that a problem may declare (see docs/numerics.md)."""

    SHIFTED = "shifted"
    SCALED = "scaled"
    SMALL_VARIANCE = "small_variance"
    HEAVY_TAILED = "heavy_tailed"


@dataclass(frozen=True)
class TensorReport:
    """The error of one tensor against the float64 reference, with its budget.

    Attributes:
        name: ``output``, ``output[1]``, ``output.logits``; ``buffer NAME`` for a buffer after the
            forward; for a gradient, the name of the input or parameter.
        shape: Shape of the reference's tensor.
        dtype: Its dtype, such as ``float32``.
        ok: Whether every error is finite and within its budget.
        l2_error: Relative L2 error of the whole tensor or of the worst slice along dimension 0,
            whichever is larger relative to its budget. None if the tensor was not compared.
        l2_budget: Budget of ``l2_error``.
        max_error: Largest error over the RMS of the reference, chosen in the same way.
        max_budget: Budget of ``max_error``.
        share: Largest ratio of error to budget; above 1 fails. None if nothing was compared.
        trial: Trial, counted from 0, with this largest share. After the last trial come its forwards
            without gradients (5 and 6), and a timed call that failed (5).
        cotangent: For a gradient, the cotangent with the largest share: ``normal``, ``ones`` or
            ``output``.
        note: Remark that no number expresses, such as a different shape; or empty.
        sensitivity: Relative L2 norm of the change if elements within rounding of a branch take the
            other one. The comparison subtracted it from the errors, slice by slice. None if no such
            element remained.
        rounding: Relative L2 norm of the change if operands of products are rounded to the
            problem's class; None in the class fp32.
        eager_error: Relative L2 error of eager PyTorch, over all its runs; None in the class fp32.
        worst_index: Index of the worst element of a tensor that fails: the one with the largest
            error over its tolerance. None if no element was examined, and then all following
            attributes are empty too.
        received: The candidate's value there.
        expected: The float64 reference's value there.
        eager: Eager PyTorch's value there; None if it is unknown.
        allowed: Tolerance of that element, in the tensor's own unit.
        wrong: Number of elements whose error exceeds the tolerance that the maximum norm's budget
            gives them.
        pattern: Description of where the wrong elements are and what they hold; empty if no pattern
            fits (see docs/read-a-verdict.md).
        wrong_grid: Share of these elements among all in each cell of a grid, at most 16 rows of at
            most 32 columns. Columns divide the last dimension, and rows all others taken together.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    ok: bool
    l2_error: float | None = None
    l2_budget: float | None = None
    max_error: float | None = None
    max_budget: float | None = None
    share: float | None = None
    trial: int | None = None
    cotangent: str | None = None
    note: str = ""
    sensitivity: float | None = None
    rounding: float | None = None
    eager_error: float | None = None
    worst_index: tuple[int, ...] | None = None
    received: float | None = None
    expected: float | None = None
    eager: float | None = None
    allowed: float | None = None
    wrong: int | None = None
    pattern: str = ""
    wrong_grid: tuple[tuple[float, ...], ...] = ()

    @property
    def counted(self) -> str:
        """The number of wrong elements in words; empty if they were not counted."""
        elements = math.prod(self.shape)
        if self.wrong is None or not elements:
            return ""
        if not self.wrong:
            return f"none of {elements} elements is wrong by itself"
        percent = 100 * self.wrong / elements
        share = f"{percent:.1f}" if percent >= 0.1 else f"{percent:.1g}"
        return f"{self.wrong} of {elements} elements wrong ({share} %)"


#: Suffix of the status of a pass in which none of the solution's own kernels did any work.
NO_OWN_KERNEL_SUFFIX = ", no kernel of its own"
#: Levels of findings.
ERROR, REPORT = "error", "report"
#: Words in the message of a record whose timing ended early, since the candidate was far behind one to beat.
FEWER_PAIRS = "pairs only"
#: Kinds of findings that say how many orders of a launch have run (``check --exhaustive``): all, or not all.
ORDER_KINDS = ("explored", "incomplete")


@dataclass(frozen=True)
class Finding:
    """A fault or an observation about a candidate, with its place in the source if it is known.

    Attributes:
        kind: ``race``, ``out-of-bounds``, ``divergence``, ``deadlock``, ...
        kernel: Name of the kernel; None if it is unknown.
        line: Line in the solution's own source; None if it is unknown.
        accesses: Thread, block, line and a word for each access.
        remedy: How to fix it.
        message: Description in one sentence.
        level: ``error`` if it decides the verdict, ``report`` if it is evidence that never changes
            it.
    """

    kind: str
    kernel: str | None
    line: int | None
    accesses: tuple[dict[str, Any], ...]
    remedy: str
    message: str = ""
    level: str = ERROR

    @property
    def words(self) -> str:
        """The finding in one line: kind, message, place and remedy."""
        place = f" (kernel {self.kernel}, line {self.line})" if self.kernel else ""
        return f"{self.kind}: {self.message}{place}{f'; {self.remedy}' if self.remedy else ''}"


@dataclass(frozen=True)
class EvaluationRecord:
    """The evaluation of one candidate on one case of its problem.

    Attributes:
        version: Version of this layout.
        problem: Name of the problem.
        solution: ``problem/variant``, or the path that the user named.
        case: Name of the case; ``custom`` for a case from ``--set``.
        constants: Constants that the case replaced.
        device: ``cpu`` (the emulator) or ``cuda:N``.
        status: Status of the evaluation.
        message: A few lines that a person or a model can act on; empty if there is nothing to say.
        rule: Integrity rule that a ``CHEATED`` candidate broke, else None.
        outputs: A report for each output tensor, and for each buffer that the reference's forward
            changes.
        gradients: A report for each differentiable input and parameter.
        precision_class: Precision class under which the candidate was judged: the problem's, or
            ``10-bit`` where TF32 was allowed.
        trials: Number of judged trials.
        forward_ms: Median latency of a forward; None if it was not measured.
        forward_backward_ms: Median latency of a forward with backward; None if it was not measured.
        baselines: Baselines of the timing by name (``eager``, ``compile``, ...; see
            docs/measuring.md). ``forward_ms`` and ``forward_backward_ms`` are medians. ``speedup``
            has by direction (ratio, low, high): the median of paired ratios with its 95 % interval.
            It is empty if the candidate's speed does not count. ``prepare_s`` is the compile time
            in seconds, possibly shortened by caches. ``note`` describes an oddity and ``failure`` a
            failed timing. ``kept_from`` names the record that the medians come from if the baseline
            was not timed this time. A key without a value is missing. Empty if nothing was
            measured.
        speedup: Median of paired ratios, eager over candidate, by direction (``forward``,
            ``forward_backward``); None if it was not measured.
        speedup_interval: The 95 % bootstrap interval of each of these medians, (low, high) (see
            ``timing.statistics.median_interval``); empty if it was not measured.
        samples: Raw samples and spreads by direction and side (see ``timing.statistics.Latency``).
            The sides are ``candidate`` and every timed baseline. The candidate's samples are under
            ``uncertified`` if its speed does not count.
        certified: Certificate of the judge's own clock, by direction (see
            ``timing.certificate.Certificate``). A direction is missing if it was not measured, or
            if the windows prove nothing; its speed then does not count.
        peak_bytes: Peak device memory of a call, by direction and side (``candidate``, ``eager``),
            as reported by their processes. It contains parameters, results and scratch memory, but
            not inputs and cotangents. Empty if nothing was measured.
        floor: Speed of light by direction (see ``timing.floor.SpeedOfLight``): the unavoidable
            ``bytes`` and ``flops``, ``floor_ms``, its ``bound``, the arithmetic ``intensity`` in
            flops a byte, and the ``share`` that the candidate reaches, (share, low, high). Empty if
            the device's ceilings or the problem's work are unknown.
        modes: Further measures of both sides for short calls, by direction and mode (``queued``,
            ``graph``, ``kernels``; see docs/measuring.md): ``candidate_ms``, ``eager_ms``,
            ``overhead_ms`` of an empty call, or ``failure``. ``synchronised`` has only the empty
            call. The candidate's own process reports its figures.
        device_state: Clocks, power, temperature, throttling and other processes on the GPU
            ``before``, ``during`` and ``after`` timing, and ``flags``, which describe instabilities
            and remedies. Empty without NVML.
        reference_pieces: Number of pieces of the batch in which the reference was evaluated, to fit
            the memory.
        shared_draws: Number of draws for which another candidate of the run already gave the error
            of eager.
        seed: Secret of the draws that all candidates of the command shared, in hex.
        own_seed: Secret of the draws that only this candidate received (its last trial and timed
            calls), in hex. Empty in records of versions that gave all candidates the same draws.
        robustness: Calls beyond the problem's own inputs, by name (``signs``, ``batch``,
            ``larger batch``, ``layout``, ``not finite``, ``large``, ``small``, ``ends``, ``zeros``,
            ``evaluation mode``), with their results: ``passed``, ``failed`` with the fault,
            ``refused`` if the candidate raised at a layout, or ``left out`` with the reason. They
            change no verdict.
        digest: sha256 of the solution file.
        problem_digest: sha256 of the problem file.
        environment: Versions of the software and the name of the machine's processor.
        findings: Faults and observations with their places.
        build_s: Seconds that compilers ran for this candidate; 0 if all builds came from the cache.
        run_s: Seconds that the candidate ran on this case.
        total_s: Seconds from command to verdict, including references.
        stages_s: Seconds of each stage, in their order: ``inputs`` (drawing, the reference's form),
            ``worker`` (starting it, building, constructing), ``trials``, ``further draws``,
            ``baselines`` (making and compiling them), ``series``, ``certificate``, ``memory``,
            ``kernels`` (the profiler), ``short calls``, ``robustness``, ``nvcc``, ``fitness`` (the
            problem's checks, once for each case). A stage that did not run is missing.
        log: Output of the candidate, with the middle cut out if it is long.
        build_log: Path of the compiler's full output; None if no build failed.
        policy: The user's choices for the evaluation: ``forward_only``, ``timeout_s``,
            ``build_timeout_s``. If chosen, also ``timing`` (False, on a GPU),
            ``require_confinement``, ``trials``, ``baselines``, ``precision`` (``relaxed``), ``preset``,
            ``tf32`` (``allow``, ``forbid``), ``compat`` and ``rules`` (integrity rules with a mode
            other than the default: ``off``, ``report``, ``enforce``). ``replay`` (True) marks a repeated evaluation.
        solution_path: Path of the solution file; in words where its text came from, if it was
            temporary.
        problem_path: Path of the problem file.
        record: Name of the record in the store, 12 hex digits.
        run: Name of the command, ``run-`` and 8 hex digits, which all its records share.
        created_at: Time of the record, UTC, ISO 8601.
        kinks: Number of samples over all trials that were ``redrawn`` because rounding could decide
            a branch in them, and number of such elements ``remaining``. Empty if the reference has
            no such branch.
        kernels: Kernels of one call after the trials, by direction (``forward``, ``backward``), in
            the order of their first launch. On the emulator they are only the candidate's own.
            Empty if they were not observed.
        copies: Copies and fills by the driver in the same calls, by direction; a direction without
            any is missing.
        operators: Torch's heavy operators by direction, including calls from the candidate's C++,
            with their largest number in one call. The call is any judged one on the emulator, and
            one more call on a GPU. The candidate's process reports them. A direction without any is
            missing.
        own_share: Share of the work that the solution's own kernels do, from 0 to 1
            (docs/read-a-verdict.md). On a GPU it is their share of the time of all kernels of a call. On
            the emulator it is their share of the work of all judged calls: threads of own kernels
            against elements that torch's operators receive. Copies do not count. None if it was not
            measured.
        confinement: Each layer that should confine the candidate's process, with the reason why it
            was missing (empty if it worked). Empty if no process started. See docs/security.md.
        further_draws: The problem's further draws after the trials, by name, with their results:
            ``passed`` or ``failed`` with the worst tensor and the share of its budget, or
            ``left out`` with the reason. Wrong values change no verdict. Empty if the problem
            declares none, or if the candidate had not passed.
        compiled: nvcc's result for the CUDA sources (``--check``); None if it was not requested or
            not reached.
        settings: Texts of ``--set`` that made the case, in its syntax. A list in ``constants`` may
            have been a tuple.
        digests: Digests of tensors' bits in each trial, by tensor (see ``judge.exchange.digests``).
            They cover what the candidate was ``given`` (inputs, parameters and buffers), outputs
            and buffers, and as ``gradient of NAME`` gradients under all cotangents. Empty if it did
            not complete a trial.
        kernelbench: What KernelBench's evaluator would say (``--preset kernelbench``): ``correct`` by
            ``torch.allclose`` under the ``tolerance``, the smallest tolerance that would do
            (``error``), the number of ``trials``, and the means over calls ``runtime_ms``,
            ``eager_ms`` and their ratio ``speedup``. Empty without the preset, or if it is not known.
        tf32: Kinds of float32 ``products`` in the reference (``matmul``, ``convolution``), those for
            which TF32 was ``allowed``, and the class in which eager ran, by its error (``eager``;
            None if it was not measured). Empty if the candidate did not come so far.
        replay: Result of a repeated evaluation: the original record (``of``), the ``outcome``
            (``identical``, ``same verdict``, ``different``), ``why``, ``differences`` (``field``,
            ``then``, ``now``), the changed parts of the ``environment``, and the ``spread`` of
            results on the same inputs (see ``judge.trials.repeats``).
        unfit: Reasons why the problem cannot tell a right answer from a wrong one on this case, so
            a verdict proves little (see docs/write-a-problem.md). Empty if the fitness checks found
            none; None if they did not run or could not finish.
    """

    problem: str
    solution: str
    case: str
    device: str
    status: Status
    message: str
    seed: str
    digest: str
    problem_digest: str
    precision_class: PrecisionClass
    constants: dict[str, Any] = field(default_factory=dict)
    rule: str | None = None
    outputs: tuple[TensorReport, ...] = ()
    gradients: tuple[TensorReport, ...] = ()
    trials: int = 0
    forward_ms: float | None = None
    forward_backward_ms: float | None = None
    baselines: Annotated[dict[str, Any], dict[str, json_schemas.Baseline]] = field(default_factory=dict)
    speedup: dict[str, float] | None = None
    speedup_interval: dict[str, tuple[float, float]] = field(default_factory=dict)
    samples: Annotated[dict[str, Any], dict[str, dict[str, json_schemas.Latency]]] = field(default_factory=dict)
    certified: Annotated[dict[str, Any], dict[str, json_schemas.Certificate]] = field(default_factory=dict)
    peak_bytes: dict[str, dict[str, int]] = field(default_factory=dict)
    floor: Annotated[dict[str, Any], dict[str, json_schemas.Floor]] = field(default_factory=dict)
    modes: Annotated[dict[str, Any], dict[str, dict[str, json_schemas.ShortCall]]] = field(default_factory=dict)
    device_state: Annotated[dict[str, Any], json_schemas.DeviceState] = field(default_factory=dict)
    reference_pieces: int = 1
    shared_draws: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    build_s: float = 0.0
    run_s: float = 0.0
    total_s: float = 0.0
    stages_s: dict[str, float] = field(default_factory=dict)
    log: str = ""
    build_log: str | None = None
    version: int = RECORD_VERSION
    policy: Annotated[dict[str, Any], json_schemas.Policy] = field(default_factory=dict)
    solution_path: str = ""
    problem_path: str = ""
    record: str = ""
    run: str = ""
    created_at: str = ""
    kinks: dict[str, int] = field(default_factory=dict)
    kernels: dict[str, tuple[KernelUse, ...]] = field(default_factory=dict)
    copies: dict[str, tuple[CopyUse, ...]] = field(default_factory=dict)
    operators: dict[str, dict[str, int]] = field(default_factory=dict)
    own_share: float | None = None
    confinement: dict[str, str] = field(default_factory=dict)
    further_draws: dict[str, str] = field(default_factory=dict)
    compiled: Compilation | None = None
    settings: tuple[str, ...] = ()
    digests: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kernelbench: Annotated[dict[str, Any], json_schemas.KernelBench] = field(default_factory=dict)
    tf32: Annotated[dict[str, Any], json_schemas.Tf32] = field(default_factory=dict)
    replay: Annotated[dict[str, Any], json_schemas.Replay] = field(default_factory=dict)
    own_seed: str = ""
    robustness: dict[str, str] = field(default_factory=dict)
    unfit: tuple[str, ...] | None = None

    @property
    def verdict(self) -> str:
        """The status in words.

        A pass says so if none of the solution's own kernels computed any of it.
        """
        return f"{self.status}{NO_OWN_KERNEL_SUFFIX}" if self.has_no_own_kernel else str(self.status)

    @property
    def has_no_own_kernel(self) -> bool:
        """True if it passed and no kernel of the solution's own did any work."""
        return self.status is Status.PASSED and self.own_share == 0

    @property
    def unconfined(self) -> dict[str, str]:
        """The missing confinement layers, with the reasons."""
        return {layer: why for layer, why in self.confinement.items() if why}

    def to_json(self, **more: Any) -> str:
        """Returns the record as one line of JSON, with non-finite numbers as strings (``"inf"``).

        Args:
            more: Further keys that are not the record's own, such as ``stored``.
        """
        return json.dumps(plain({**dataclasses.asdict(self), **more}), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> EvaluationRecord:
        """Parses a record from a line of JSON and ignores unknown keys.

        It checks every field, at every depth, so that no reader has to.

        Raises:
            ValueError: The text is no record of this layout; the message names the field and says
                what is wrong with it.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("not JSON") from None
        if not isinstance(data, dict):
            raise ValueError(f"an evaluation record is a JSON object, not {type(data).__name__}")
        version = data.get("version")
        if not isinstance(version, int):
            raise ValueError("not an evaluation record: it has no 'version'")
        if version > RECORD_VERSION:
            raise ValueError(
                f"the record has layout {version}, but this harness reads up to {RECORD_VERSION}: upgrade the harness"
            )
        json_schemas.check_depth(data)
        record: EvaluationRecord = converted(data, cls, "record")
        json_schemas.check_samples(record.samples)
        json_schemas.check_policy(cast(json_schemas.Policy, record.policy))
        return record


def own_share_text(share: float, device: str) -> str:
    """Formats an ``own_share``, as ``own kernels: 97 % of device time``.

    Args:
        share: Share from 0 to 1.
        device: ``cpu`` (the emulator) or ``cuda:N``.
    """
    percent = 100 * share
    digits = f"{percent:.0f}" if percent >= 10 or not percent else f"{percent:.2g}"
    return f"own kernels: {digits} % of {'emulated work' if device == 'cpu' else 'device time'}"
