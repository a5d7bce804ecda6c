"""What an evaluation found: immutable, plain, importable by every floor.

Units: errors are relative (no unit), times are seconds where the name ends in ``_s`` and milliseconds where it
ends in ``_ms``. ``None`` means unknown or not measured, never zero.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
import typing
from dataclasses import dataclass, field
from typing import Any

RECORD_VERSION = 1
_NON_FINITE = ("inf", "-inf", "nan")


class Status(enum.StrEnum):
    """How an evaluation of one candidate on one case ended."""

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
    HARNESS_ERROR = "HARNESS_ERROR"


class PrecisionClass(enum.StrEnum):
    """Mantissa classes, best first (see docs/numerics.md)."""

    FP32 = "fp32"
    TEN_BIT = "10-bit"
    SEVEN_BIT = "7-bit"


class FurtherDraw(enum.StrEnum):
    """Draws beside the ordinary ones that a problem may declare (see docs/numerics.md)."""

    SHIFTED = "shifted"
    SCALED = "scaled"
    SMALL_VARIANCE = "small_variance"
    HEAVY_TAILED = "heavy_tailed"


@dataclass(frozen=True)
class TensorReport:
    """Error of one tensor against the float64 reference, with the budget it had.

    Attributes:
        name: ``output``, ``output[1]``, ``output.logits``; ``buffer NAME`` for a buffer after the forward; for a
            gradient the input's or parameter's name.
        shape: Shape of the reference's tensor.
        dtype: Its dtype, as ``float32``.
        ok: Whether every error is finite and within its budget.
        l2_error: Relative L2 error, over the whole tensor or the worst slice of dimension 0, whichever is
            larger against its budget. None where the tensor was never compared.
        l2_budget: The budget that ``l2_error`` had.
        max_error: Largest error over the RMS of the reference, chosen in the same way.
        max_budget: The budget that ``max_error`` had.
        share: The largest of error over budget: above 1 fails. None where nothing was compared.
        trial: The trial, counted from 0, that had this (the largest) share.
        cotangent: For a gradient: ``normal``, ``ones`` or ``output``, whichever had the largest share.
        note: What a number cannot say (a shape that differs, a tensor that says nothing), or empty.
        sensitivity: Relative L2 norm of what changes when elements within rounding of a branch take the other one;
            that much was taken off the errors, slice by slice, before they met their budgets. None where no such
            element remained.
        rounding: Relative L2 norm of what rounding the operands of products to the problem's class changes; None in
            the class fp32.
        worst_index: Of a tensor that fails, where its worst element is: the one with the largest error over what it
            may be off. None where nothing was looked at, like all that follow.
        received: What the candidate returned there.
        expected: The float64 reference there.
        eager: Eager PyTorch's value there; None where that is not known.
        allowed: How far that element may be off, in the tensor's own unit.
        wrong: How many elements are off by more than the maximum norm's budget leaves each of them.
        pattern: Where these are and what they hold, in words; empty where nothing fits (see docs/numerics.md).
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
    worst_index: tuple[int, ...] | None = None
    received: float | None = None
    expected: float | None = None
    eager: float | None = None
    allowed: float | None = None
    wrong: int | None = None
    pattern: str = ""

    @property
    def counted(self) -> str:
        """How many elements are wrong, in words; empty where they were not counted."""
        elements = math.prod(self.shape)
        if self.wrong is None or not elements:
            return ""
        if not self.wrong:
            return f"none of {elements} elements is wrong by itself"
        percent = 100 * self.wrong / elements
        share = f"{percent:.1f}" if percent >= 0.1 else f"{percent:.1g}"
        return f"{self.wrong} of {elements} elements wrong ({share} %)"


#: What is added to the status of a pass where no kernel of the solution's own did any of the work.
NO_OWN_KERNEL_SUFFIX = ", no kernel of its own"
#: Levels of findings.
ERROR, REPORT = "error", "report"


@dataclass(frozen=True)
class Finding:
    """What was seen of a candidate, at a place in its source where one is known.

    Attributes:
        kind: ``race``, ``out-of-bounds``, ``divergence``, ``deadlock``, ...
        kernel: The kernel's name, None where it is not known.
        line: The solution's own line, None where it is not known.
        accesses: Who did what: thread, block, line and a word for each access.
        remedy: What to do about it.
        message: What was seen, in one sentence.
        level: ``error`` for what decides the verdict, ``report`` for evidence that never changes it.
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
        """All of it in one line: kind, what was seen, where, and what to do."""
        place = f" (kernel {self.kernel}, line {self.line})" if self.kernel else ""
        return f"{self.kind}: {self.message}{place}{f'; {self.remedy}' if self.remedy else ''}"


@dataclass(frozen=True)
class KernelUse:
    """A kernel that one call of the candidate launched; what its process said, and no proof.

    Attributes:
        name: Without its arguments.
        calls: How often it was launched.
        own: Whether a library that the candidate built has it; else it is torch's, or of a library of torch's.
        device_ms: How long it ran in all, launches and gaps not counted; None on the emulator.
    """

    name: str
    calls: int
    own: bool
    device_ms: float | None = None


@dataclass(frozen=True)
class CopyUse:
    """A kind of copy or fill that one call of the candidate had the driver do; its process's word, as ``KernelUse``.

    Attributes:
        name: As CUDA's profiler names it: ``Memcpy DtoD (Device -> Device)``, ``Memset (Device)``.
        calls: How often.
        device_ms: How long they took in all.
        bytes: What they moved in all; None where the profiler does not say.
    """

    name: str
    calls: int
    device_ms: float | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class CompiledKernel:
    """What nvcc made of a kernel for one architecture, as ``ptxas -v`` tells it; nothing ran.

    Attributes:
        name: Without return type and arguments.
        arch: The architecture, as ``sm_90``.
        registers: A thread's registers.
        shared_bytes: A block's static shared memory.
        stack_bytes: A thread's stack frame, in local memory.
        spill_store_bytes: What a thread stores because registers are short, counted in the code and not in runs of it.
        spill_load_bytes: What it loads again.
        constant_bytes: What its source declares as ``__constant__``, for all kernels together; None where unknown.
    """

    name: str
    arch: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    constant_bytes: int | None


@dataclass(frozen=True)
class Compilation:
    """What nvcc made of a candidate's CUDA sources on a machine where nothing ran on a GPU; its process's word.

    Attributes:
        arch: The architecture that was asked for, as ``sm_90``.
        compiler: Nvcc's version, as ``13.0.88``; empty where there is none.
        kernels: What was compiled, in the order of ptxas.
        error: Why there are none, or not all: the compiler's first errors with the solution's lines, or what is missing
            on this machine; empty where all sources were compiled.
        seconds: How long nvcc ran.
    """

    arch: str
    compiler: str
    kernels: tuple[CompiledKernel, ...] = ()
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class EvaluationRecord:
    """One candidate on one case of its problem.

    Attributes:
        version: Version of this layout.
        problem: Name of the problem.
        solution: ``problem/variant``, or the path that the user named.
        case: Name of the case; ``custom`` for one made with ``--set``.
        constants: The constants that the case replaced.
        device: ``cpu`` (the emulator) or ``cuda:N``.
        status: How it ended.
        message: One or a few lines for a person (or a model) to act on; empty when there is nothing to say.
        rule: The integrity rule that a ``CHEATED`` candidate broke, else None.
        outputs: One report per output tensor, and per buffer that the reference's forward changes.
        gradients: One report per differentiable input and parameter.
        precision_class: The class the problem declares, under which the candidate was judged.
        trials: How many trials were judged.
        forward_ms: Median latency of a forward, None where it was not measured.
        forward_backward_ms: Median latency of a forward with backward, None where it was not measured.
        baselines: What the candidate was timed against, by name (``eager``, ``compile``, ...; see docs/measuring.md):
            ``forward_ms`` and ``forward_backward_ms``, medians; ``speedup`` by direction, the median of paired ratios
            with its 95 % interval, (ratio, low, high), empty where the candidate's speed is not counted; ``prepare_s``,
            seconds that compiling took, caches of earlier runs included; ``note``, what is
            odd about it; ``failure``, why it could not be timed; and ``kept_from``, the record that its medians come
            from where it was not timed this time. A key is missing where there is nothing to say. Empty where nothing
            was measured.
        speedup: Median of paired ratios, eager over candidate, by direction (``forward``, ``forward_backward``);
            None where it was not measured.
        speedup_interval: The 95 % interval of each of these medians, (low, high), by bootstrap (see
            ``timing.statistics.median_interval``); empty where it was not measured.
        samples: Raw samples and spreads by direction and side (see ``timing.statistics.Latency``): ``candidate`` and
            every baseline that was timed; the candidate's are under ``uncertified`` where its speed is not counted.
        certified: What the judge's own clock proves, by direction (see ``timing.certificate.Certificate``); a direction
            is missing where it was not measured, or where the windows prove nothing: then its speed is not counted.
        peak_bytes: The most device memory that a call held, by direction and side (``candidate``, ``eager``), as their
            processes say: parameters, results and scratch memory, not inputs and cotangents. Empty where nothing was
            measured.
        floor: The speed of light by direction (see ``timing.floor.Floor``): ``bytes`` and ``flops`` that cannot be
            avoided, ``floor_ms``, what it is ``bound`` by, the arithmetic ``intensity`` in flops a byte, and the
            ``share`` of it that the candidate reaches, (share, low, high). Empty where the device's ceilings or the
            problem's work are not known.
        modes: For short calls further measures of both sides by direction and mode (``queued``, ``graph``,
            ``kernels``; see docs/measuring.md): ``candidate_ms``, ``eager_ms``, ``overhead_ms`` of an empty call, or
            ``failure``; ``synchronised`` has the empty call alone. The candidate's are its own process's word.
        device_state: Clocks, power, temperature, throttling and other processes on the GPU ``before``, ``during`` and
            ``after`` timing, and ``flags``, what is unstable about it, each with what to do. Empty where NVML is not
            there.
        reference_pieces: In how many pieces of the batch the reference was evaluated, to fit the memory.
        shared_draws: Of how many draws it was known, from another candidate of the run, by how much eager errs.
        seed: The secret of the draws that all candidates of the command shared, in hex.
        own_seed: The secret of the draws that this candidate alone was given (its last trial, and timed calls), in hex;
            empty in records of versions that gave all candidates the same draws.
        robustness: The calls beyond the problem's own inputs that were tried, by name (``signs``, ``batch``,
            ``layout``, ``not finite``), and how each ended: ``passed``, ``failed`` with what was wrong, ``refused``
            where the candidate raised at a layout, or ``left out`` and why. They change no verdict.
        digest: sha256 of the solution file.
        problem_digest: sha256 of the problem file.
        environment: Versions of the software and the name of the machine's processor.
        findings: Faults with their places.
        build_s: Seconds that compilers ran for this candidate, 0 when all came from the cache.
        run_s: Seconds that the candidate ran on this case.
        total_s: Seconds from command to verdict, references included.
        stages_s: Of these the seconds of each stage, in their order: ``inputs`` (drawing, the reference's form),
            ``worker`` (starting it, building, constructing), ``trials``, ``further draws``, ``baselines`` (making and
            compiling them), ``series``, ``certificate``, ``memory``, ``kernels`` (the profiler), ``short calls``,
            ``robustness``, ``nvcc``, ``fitness`` (the problem's checks, once for each case); those that were.
        log: What the candidate printed, cut in the middle when long.
        build_log: Path of the compiler's full output, None when nothing failed to build.
        policy: How it was judged, where users can choose: ``forward_only``, ``timeout_s``, ``build_timeout_s``;
            ``timing`` (False, on a GPU), ``require_confinement``, ``trials``, ``baselines``, ``precision``
            (``relaxed``) and ``rules`` (integrity rules with another mode than by default: ``off``, ``report``,
            ``enforce``) where they were asked for; ``replay`` (True) where an earlier evaluation was repeated.
        solution_path: Where the solution file lay.
        problem_path: Where the problem file lay.
        record: The record's own name in the store, 12 hex digits.
        run: Name of the command that made it, ``run-`` and 8 hex digits; all its records share it.
        created_at: When it was made, UTC, ISO 8601.
        kinks: Over all trials, how many samples were ``redrawn`` because rounding could decide a branch in them, and
            how many elements of that kind were ``remaining``; empty where the reference has no such branch.
        kernels: The kernels of one call after the trials, by direction (``forward``, ``backward``), in the order of
            their first launch; on the emulator only the candidate's own. Empty where they were not seen.
        copies: The copies and fills by the driver in the same calls, by direction; a direction without any is missing.
        operators: Torch's heavy operators by direction, those that the candidate's C++ calls among them: how often each
            ran in one call at most, of the judged calls on the emulator and of one more call on a GPU; its process's
            word. A direction without any is missing.
        own_share: The share of the work that the solution's own kernels do, from 0 to 1 (docs/integrity.md). On a GPU
            it is their share of the time that all kernels of a call take. On the emulator it is their share of the
            work of all judged calls: threads of own kernels against elements that torch's operators are given.
            Copies count to neither. None where it was not measured.
        confinement: Each layer that confined the candidate's process, and why it was missing (empty where it held);
            empty where no process started. See docs/confinement.md.
        further_draws: The problem's further draws that were run after the trials, by name, and how each ended:
            ``passed`` or ``failed`` with the worst tensor and the share of its budget, or ``left out`` and why. They
            change no verdict. Empty where the problem declares none, and where the candidate did not pass before.
        compiled: What nvcc made of its CUDA sources (``--check``); None where that was not asked for, or not come to.
        settings: What ``--set`` made the case of, as it takes them: a list in ``constants`` may have been a tuple.
        digests: By tensor a digest of its bits in each trial: of what the candidate was ``given`` (inputs, parameters
            and buffers), of outputs, buffers and, as ``gradient of NAME``, gradients under all cotangents (see
            ``judge.digests``). Empty where it did not get through a trial.
        replay: Where an earlier evaluation was repeated: the record ``of`` it, the ``outcome`` (``identical``, ``same
            verdict``, ``different``), ``why``, ``differences`` (``field``, ``then``, ``now``), what of the
            ``environment`` is another now, and the ``spread`` of results on the same inputs (see ``judge.repeats``).
        unfit: Why the problem cannot tell a right answer from a wrong one on this case, a reason each: a verdict then
            proves little (see docs/numerics.md). Empty where the fitness checks found nothing; None where they did not
            run.
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
    baselines: dict[str, Any] = field(default_factory=dict)
    speedup: dict[str, float] | None = None
    speedup_interval: dict[str, tuple[float, ...]] = field(default_factory=dict)
    samples: dict[str, Any] = field(default_factory=dict)
    certified: dict[str, Any] = field(default_factory=dict)
    peak_bytes: dict[str, dict[str, int]] = field(default_factory=dict)
    floor: dict[str, Any] = field(default_factory=dict)
    modes: dict[str, Any] = field(default_factory=dict)
    device_state: dict[str, Any] = field(default_factory=dict)
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
    policy: dict[str, Any] = field(default_factory=dict)
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
    replay: dict[str, Any] = field(default_factory=dict)
    own_seed: str = ""
    robustness: dict[str, str] = field(default_factory=dict)
    unfit: tuple[str, ...] | None = None

    @property
    def verdict(self) -> str:
        """The status in words: a pass says so where nothing of it was computed by a kernel of the solution's own."""
        return f"{self.status}{NO_OWN_KERNEL_SUFFIX}" if self.has_no_own_kernel else str(self.status)

    @property
    def has_no_own_kernel(self) -> bool:
        """Whether it passed and none of its work was done by a kernel of the solution's own."""
        return self.status is Status.PASSED and self.own_share == 0

    @property
    def unconfined(self) -> dict[str, str]:
        """The layers that were missing, and why."""
        return {layer: why for layer, why in self.confinement.items() if why}

    def to_json(self, **more: Any) -> str:
        """The record as one line of JSON; non-finite numbers as strings (``"inf"``, ``"nan"``).

        Args:
            more: Further keys that are not the record's own, such as ``stored``.
        """
        return json.dumps(plain({**dataclasses.asdict(self), **more}), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> EvaluationRecord:
        """The record that a line of JSON holds; keys that a record does not have are left out.

        Raises:
            ValueError: It is no record of this layout; the message says what is wrong with it.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("this is no JSON") from None
        if not isinstance(data, dict):
            raise ValueError(f"an evaluation record is a JSON object, not {type(data).__name__}")
        version = data.get("version")
        if not isinstance(version, int):
            raise ValueError("this is no evaluation record: it has no 'version'")
        if version > RECORD_VERSION:
            raise ValueError(f"the record has layout {version}, this harness knows {RECORD_VERSION}: upgrade it")
        record: EvaluationRecord = _converted(data, cls, "record")
        return record


def own_share_text(share: float, device: str) -> str:
    """An ``own_share`` in words, as ``own kernels: 97 % of device time``.

    Args:
        share: From 0 to 1.
        device: ``cpu`` (the emulator) or ``cuda:N``.
    """
    percent = 100 * share
    digits = f"{percent:.0f}" if percent >= 10 or not percent else f"{percent:.2g}"
    return f"own kernels: {digits} % of {'emulated work' if device == 'cpu' else 'device time'}"


def plain(value: Any) -> Any:
    """Replace what JSON cannot hold: non-finite floats, and constants of other types by their repr."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)


def _converted(value: Any, hint: Any, where: str) -> Any:
    """A JSON value as the type that a field declares.

    Raises:
        ValueError: It is of another type; ``where`` names the field.
    """
    if hint is Any:
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return None if value is None else _converted(value, arguments[0], where)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _converted_object(value, hint, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_converted(item, arguments[0], where) for item in value)
    if (origin or hint) is dict and isinstance(value, dict):
        kind = arguments[1] if arguments else Any
        return {key: _converted(item, kind, f"{where}[{key!r}]") for key, item in value.items()}
    if hint is float and not isinstance(value, bool) and (isinstance(value, int | float) or value in _NON_FINITE):
        return float(value)
    if isinstance(hint, enum.EnumType) and isinstance(value, str):
        return hint(value)
    if isinstance(hint, type) and type(value) is hint:
        return value
    raise ValueError(f"{where} is {type(value).__name__}, where {getattr(hint, '__name__', hint)} belongs")


def _converted_object(value: dict[str, Any], hint: Any, where: str) -> Any:
    hints = typing.get_type_hints(hint)
    known = {}
    for declared in dataclasses.fields(hint):
        if declared.name in value:
            known[declared.name] = _converted(value[declared.name], hints[declared.name], f"{where}.{declared.name}")
        elif declared.default is dataclasses.MISSING and declared.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where} has no {declared.name!r}")
    return hint(**known)
