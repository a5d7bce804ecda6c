"""Measures the highest rates that a GPU reaches, and keeps them in a file.

The rates are bandwidths and matrix multiplications. The file is ``HARNESS_HOME/ceilings.json``, by
GPU and software. It is a cache that takes seconds to fill, and no verdict depends on it. A damaged
file therefore does not end an evaluation: the module ignores it with a warning on stderr, and the
next measurement replaces it. The module checks what it reads like any input.

Importing this module does not import torch.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import DeviceError
from harness.records.record import PrecisionClass
from harness.system.files import read_source, write_whole
from harness.system.text import one_line, shortened

if TYPE_CHECKING:
    import torch

FILE_NAME = "ceilings.json"
BANDWIDTHS = ("copy", "read", "write")
PRODUCTS = ("fp32", "tf32", "fp16", "bf16")
#: Bounds of plausible rates, in bytes or flops a second. A value outside was not measured.
LEAST_RATE, MOST_RATE = 1e9, 1e18
#: Half-precision multiplications that replace one in float32 (see ``Ceilings.rate``).
SPLIT_PRODUCTS = 3

#: Size of a tensor for bandwidths: this many bytes, or an eighth of the free memory. The
#: measurement holds two such tensors.
LARGEST_BYTES, MEMORY_PART = 2 << 30, 8
#: The size is a multiple of the first number and at least the second number times the L2 cache, which would
#: otherwise serve part of the tensor.
GRAIN_BYTES, LEAST_CACHES = 1 << 20, 4
#: Matrix shapes: (rows, WIDTH) by (WIDTH, WIDTH), with few rows as in the problems, and with many.
#: The better rate counts.
ROWS, WIDTH = (1024, 8192), 8192
#: Warm-up before a series. Clocks rise, and libraries choose their kernels and allocate workspaces.
WARM_UP_S = 0.05
#: Approximate duration of a series, and bounds on its number of calls.
SERIES_S, FEWEST_CALLS, MOST_CALLS = 0.03, 5, 25
#: GPU cycles to wait before a series, about 5 ms. The launches take less.
QUEUE_CYCLES = 10_000_000


@dataclass(frozen=True)
class Ceilings:
    """The best rates of one device.

    Attributes:
        copy: Bytes a second, read and written, of copying.
        read: Bytes a second of reading.
        write: Bytes a second of writing.
        fp32: Flop/s of matrix multiplication in float32.
        tf32: The same with operands rounded to TF32; None if the device has no TF32.
        fp16: The same in float16; None if the device has no float16.
        bf16: The same in bfloat16; None if the device has no bfloat16.
        device: Name of the GPU.
        software: Versions of torch and CUDA.
        measured_at: Time of the measurement, ISO 8601 to the second, in UTC.

    Raises:
        ValueError: A rate is implausible for a GPU, or a text is malformed.
    """

    copy: float
    read: float
    write: float
    fp32: float
    tf32: float | None
    fp16: float | None
    bf16: float | None
    device: str
    software: str
    measured_at: str

    def __post_init__(self) -> None:
        for name in (*BANDWIDTHS, *PRODUCTS):
            value = getattr(self, name)
            if value is None and name in PRODUCTS and name != "fp32":
                continue
            if type(value) not in (int, float) or not LEAST_RATE <= value <= MOST_RATE:
                raise ValueError(f"{name!r} is not a valid rate")
        for name in ("device", "software", "measured_at"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name!r} is not a text")
        moment = datetime.fromisoformat(self.measured_at)
        if moment.tzinfo is not UTC or moment.isoformat(timespec="seconds") != self.measured_at:
            raise ValueError("'measured_at' is not a valid time")

    def rate(self, precision_class: PrecisionClass) -> float:
        """Returns the best rate, in flop/s, of matrix multiplications in a precision class.

        A float32 multiplication can be split into three of float16 parts of its operands, with sums
        in float32 (Ootomo and Yokota, 2022, "Recovering single precision accuracy from Tensor Cores
        while surpassing the FP32 theoretical peak performance"). A lower class allows what a higher
        class allows.
        """
        rates = [self.fp32, (self.fp16 or 0.0) / SPLIT_PRODUCTS]
        if precision_class is not PrecisionClass.FP32:
            rates += [self.fp16 or 0.0, self.tf32 or 0.0]
        if precision_class is PrecisionClass.SEVEN_BIT:
            rates.append(self.bf16 or 0.0)
        return max(rates)

    def figures(self) -> dict[str, str]:
        """Formats the known rates: ``{"copy": "4.28 TB/s", "fp32": "51 TFLOP/s", ...}``."""
        units = {**dict.fromkeys(BANDWIDTHS, "TB/s"), **dict.fromkeys(PRODUCTS, "TFLOP/s")}
        rates = {name: getattr(self, name) for name in units}
        return {name: f"{rate / 1e12:.3g} {units[name]}" for name, rate in rates.items() if rate is not None}


def load(home: Path, environment: Mapping[str, str]) -> Ceilings | None:
    """Loads the kept ceilings of a GPU for the running torch.

    Args:
        home: ``HARNESS_HOME``.
        environment: Description of the GPU by ``environment.describe_gpu``; the function uses
            ``gpu``, ``capability`` and ``cuda``.

    Returns:
        The ceilings, or None if the file has none or only unusable ones. The latter prints a
        warning on stderr.
    """
    path = home / FILE_NAME
    try:
        entry = _entries(path).get(_key(environment))
        return None if entry is None else _of_this(_from_entry(entry), environment)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = one_line(shortened(str(getattr(error, "strerror", None) or error), 200))
        remedy = "`python -m harness doctor --calibrate` writes it again"
        print(f"warning: {one_line(str(path))} is ignored: {why}; {remedy}", file=sys.stderr)
        return None


def save(home: Path, environment: Mapping[str, str], ceilings: Ceilings) -> None:
    """Saves ceilings beside those of other GPUs and software, and drops unusable entries.

    If two programs save at the same time, the later one wins.

    Args:
        home: ``HARNESS_HOME``; the function creates it if it is missing.
        environment: The same as for ``load``.
        ceilings: Ceilings of this GPU.

    Raises:
        OSError: The file cannot be written.
    """
    home.mkdir(parents=True, exist_ok=True)
    path = home / FILE_NAME
    try:
        entries = {key: entry for key, entry in _entries(path).items() if _is_usable(entry)}
    except (OSError, ValueError):
        entries = {}
    entries[_key(environment)] = asdict(ceilings)
    write_whole(path, f"{json.dumps(entries, indent=2)}\n".encode())


def _key(environment: Mapping[str, str]) -> str:
    return f"{environment['gpu']}, compute capability {environment['capability']}, {_software(environment['cuda'])}"


def _software(cuda: str) -> str:
    import torch

    return f"torch {torch.__version__}, CUDA {cuda}"


def _entries(path: Path) -> dict[str, Any]:
    """Reads the entries of a file by GPU and software, unchecked.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is no JSON object.
    """
    try:
        entries = json.loads(read_source(path))
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(entries, dict):
        raise ValueError("it is not a JSON object")
    return entries


def _from_entry(entry: Any) -> Ceilings:
    """Converts an entry of the file to ceilings.

    Raises:
        ValueError: The entry is not valid.
    """
    names = {field.name for field in dataclasses.fields(Ceilings)}
    if not isinstance(entry, dict) or set(entry) != names:
        raise ValueError(f"an entry must have exactly the keys {', '.join(sorted(names))}")
    return Ceilings(**entry)


def _is_usable(entry: Any) -> bool:
    try:
        _from_entry(entry)
    except ValueError:
        return False
    return True


def _of_this(ceilings: Ceilings, environment: Mapping[str, str]) -> Ceilings:
    """Returns the ceilings if they belong to this GPU and software.

    Raises:
        ValueError: They belong to another GPU or other software.
    """
    if (ceilings.device, ceilings.software) != (environment["gpu"], _software(environment["cuda"])):
        raise ValueError("its entry for this GPU belongs to another GPU or other software")
    return ceilings


def measure(device: torch.device) -> Ceilings:
    """Measures an otherwise idle GPU; it takes a few seconds.

    The function restores flags and frees its memory, except for the workspace of the matrix
    library. Each rate is the best of several implementations, and each of those is the median of
    consecutive calls. A candidate must not be able to exceed a ceiling.

    Args:
        device: A CUDA device.

    Raises:
        DeviceError: Too little memory is free, or the device does not work.
    """
    import torch

    with torch.cuda.device(device), torch.no_grad():
        try:
            rates = {**_bandwidths(device), **_products(device)}
            torch.cuda.empty_cache()
        except RuntimeError as error:  # includes out of memory
            raise DeviceError(f"cannot measure the peak rates of {device}: {error}") from None
        return Ceilings(
            **{name: rates.get(name) for name in (*BANDWIDTHS, *PRODUCTS)},  # type: ignore[arg-type]
            device=str(torch.cuda.get_device_properties(device).name),
            software=_software(str(torch.version.cuda)),
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def _bandwidths(device: torch.device) -> dict[str, float]:
    """Measures the bytes a second of copying, reading and writing.

    Raises:
        DeviceError: So little memory is free that the L2 cache would distort the rates.
    """
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    size = min(LARGEST_BYTES, free // MEMORY_PART) // GRAIN_BYTES * GRAIN_BYTES
    least = LEAST_CACHES * torch.cuda.get_device_properties(device).L2_cache_size
    if size < max(GRAIN_BYTES, least):
        raise DeviceError(
            f"cannot measure the peak rates of {device}: it has {free / 2**30:.1f} GiB of free memory, and "
            f"the measurement needs {least * MEMORY_PART / 2**30:.1f}; end other programs on it"
        )
    source = torch.empty(size // 4, dtype=torch.float32, device=device).uniform_()
    target = torch.empty_like(source)
    rows = source.view(-1, GRAIN_BYTES // 4)
    copies = (lambda: target.copy_(source), lambda: torch.neg(source, out=target))
    reads = (source.sum, source.amax, lambda: rows.sum(dim=1))
    writes = (lambda: target.fill_(1.0), target.zero_)
    return {
        "copy": 2 * size / _fastest_s(device, *copies),
        "read": size / _fastest_s(device, *reads),
        "write": size / _fastest_s(device, *writes),
    }


def _products(device: torch.device) -> dict[str, float]:
    """Measures the flop/s of matrix multiplication by kind, then restores torch's flag for TF32."""
    import torch

    kinds = {"fp32": (torch.float32, "ieee"), "fp16": (torch.float16, "ieee")}
    if torch.cuda.get_device_capability(device) >= (8, 0):
        kinds |= {"tf32": (torch.float32, "tf32"), "bf16": (torch.bfloat16, "ieee")}
    flags = torch.backends.cuda.matmul
    before = flags.fp32_precision
    try:
        rates = {}
        for kind, (dtype, precision) in kinds.items():
            flags.fp32_precision = precision  # the newer name of allow_tf32, which causes no warning
            rates[kind] = max(_product_rate(rows, dtype, device) for rows in ROWS)
        return rates
    finally:
        flags.fp32_precision = before


def _product_rate(rows: int, dtype: torch.dtype, device: torch.device) -> float:
    """Measures the flop/s of one matrix multiplication.

    The second operand is transposed, like the weight of a linear layer.
    """
    import torch

    # The values are random, because zeros take less power. A GPU at its power limit would run
    # faster on zeros than on real data.
    left = torch.randn(rows, WIDTH, dtype=dtype, device=device)
    right = torch.randn(WIDTH, WIDTH, dtype=dtype, device=device)
    product = torch.empty(rows, WIDTH, dtype=dtype, device=device)
    return 2 * rows * WIDTH * WIDTH / _fastest_s(device, lambda: torch.mm(left, right.t(), out=product))


def _fastest_s(device: torch.device, *calls: Callable[[], object]) -> float:
    """Returns the seconds that the fastest call takes."""
    return min(_median_s(device, call) for call in calls)


def _median_s(device: torch.device, call: Callable[[], object]) -> float:
    """Returns the median time of consecutive calls, in seconds, from events around them.

    A spinning kernel hides the launches of the calls.
    """
    import torch

    once_s, until = 0.0, time.monotonic() + WARM_UP_S
    while not once_s or time.monotonic() < until:
        started = time.monotonic()
        call()
        torch.cuda.synchronize(device)
        once_s = time.monotonic() - started
    count = min(MOST_CALLS, max(FEWEST_CALLS, int(SERIES_S / once_s)))
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]  # type: ignore[no-untyped-call]
    torch.cuda._sleep(QUEUE_CYCLES)  # type: ignore[no-untyped-call]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize(device)
    return float(statistics.median(first.elapsed_time(last) for first, last in itertools.pairwise(events))) / 1e3
