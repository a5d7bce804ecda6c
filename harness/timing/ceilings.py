"""What a GPU reaches at best: bandwidths and the rates of products, measured once and kept.

They are kept in ``HARNESS_HOME/ceilings.json``, by GPU and software. That file is a cache of something that takes
seconds to measure, and no verdict depends on it; so a damaged one does not end an evaluation: it is ignored, with a
warning on stderr, and the next measurement replaces it. What is taken from it is checked like any input.

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
#: No GPU moves or computes so little or so much a second; what lies outside was not measured.
LEAST_RATE, MOST_RATE = 1e9, 1e18
#: Products of one float32 product that is split into half-precision ones (see ``Ceilings.rate``).
SPLIT_PRODUCTS = 3

#: A tensor for bandwidths has so many bytes, or an eighth of the free memory; two are held.
LARGEST_BYTES, MEMORY_PART = 2 << 30, 8
#: It is a multiple of this, and at least so many times the L2 cache, which would else serve part of it.
GRAIN_BYTES, LEAST_CACHES = 1 << 20, 4
#: Products are (rows, WIDTH) by (WIDTH, WIDTH): few rows as in the problems, and many; the better rate counts.
ROWS, WIDTH = (1024, 8192), 8192
#: Before a series calls run for so long: clocks rise, libraries choose their kernels and make their workspaces.
WARM_UP_S = 0.05
#: A series takes about so long, within bounds.
SERIES_S, FEWEST_CALLS, MOST_CALLS = 0.03, 5, 25
#: Cycles that a series waits behind, about 5 ms: longer than its launches take.
QUEUE_CYCLES = 10_000_000


@dataclass(frozen=True)
class Ceilings:
    """The best rates of one device.

    Attributes:
        copy: Bytes a second, read and written, of copying.
        read: Bytes a second of reading.
        write: Bytes a second of writing.
        fp32: Flop/s of products in float32.
        tf32: The same with operands rounded to TF32; None where the device has none.
        fp16: The same in float16; None where the device has none.
        bf16: The same in bfloat16; None where the device has none.
        device: The GPU's name.
        software: The versions of torch and CUDA.
        measured_at: When, ISO 8601 to the second, in UTC.

    Raises:
        ValueError: A rate is no number that a GPU could have, or a text is not what it should be.
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
                raise ValueError(f"{name!r} is no rate that a GPU could have")
        for name in ("device", "software", "measured_at"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name!r} is no text")
        moment = datetime.fromisoformat(self.measured_at)
        if moment.tzinfo is not UTC or moment.isoformat(timespec="seconds") != self.measured_at:
            raise ValueError("'measured_at' is no time as it is written here")

    def rate(self, precision_class: PrecisionClass) -> float:
        """The best rate, in flop/s, of products that a precision class allows.

        A float32 product can be had as three of float16 parts of its operands, with sums in float32 (Ootomo and
        Yokota, 2022, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical
        peak performance"). What a class allows the lower ones allow too.
        """
        rates = [self.fp32, (self.fp16 or 0.0) / SPLIT_PRODUCTS]
        if precision_class is not PrecisionClass.FP32:
            rates += [self.fp16 or 0.0, self.tf32 or 0.0]
        if precision_class is PrecisionClass.SEVEN_BIT:
            rates.append(self.bf16 or 0.0)
        return max(rates)

    def figures(self) -> dict[str, str]:
        """The rates that are known, for people: ``{"copy": "4.28 TB/s", ..., "fp32": "51 TFLOP/s", ...}``."""
        units = {**dict.fromkeys(BANDWIDTHS, "TB/s"), **dict.fromkeys(PRODUCTS, "TFLOP/s")}
        rates = {name: getattr(self, name) for name in units}
        return {name: f"{rate / 1e12:.3g} {units[name]}" for name, rate in rates.items() if rate is not None}


def load(home: Path, environment: Mapping[str, str]) -> Ceilings | None:
    """The kept ceilings of a GPU under the torch that runs.

    Args:
        home: ``HARNESS_HOME``.
        environment: The GPU, as of ``environment.describe_gpu``: ``gpu``, ``capability`` and ``cuda`` are used.

    Returns:
        The ceilings; None where none were kept, or where they cannot be used (told on stderr).
    """
    path = home / FILE_NAME
    try:
        entry = _entries(path).get(_key(environment))
        return None if entry is None else _of_this(_from_entry(entry), environment)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = one_line(shortened(str(getattr(error, "strerror", None) or error), 200))
        remedy = "`python -m harness doctor --calibrate` writes it anew"
        print(f"warning: {one_line(str(path))} is ignored: {why}; {remedy}", file=sys.stderr)
        return None


def save(home: Path, environment: Mapping[str, str], ceilings: Ceilings) -> None:
    """Keep ceilings, beside those of other GPUs and software; what of the file cannot be used is dropped.

    Where two programs do this at once the later one's stay.

    Args:
        home: ``HARNESS_HOME``; made where it is missing.
        environment: As for ``load``.
        ceilings: Those of this GPU.

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
    """What a file holds by GPU and software, unchecked.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no JSON object.
    """
    try:
        entries = json.loads(read_source(path))
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON") from None
    if not isinstance(entries, dict):
        raise ValueError("it is no JSON object")
    return entries


def _from_entry(entry: Any) -> Ceilings:
    """The ceilings that an entry of the file holds.

    Raises:
        ValueError: It holds none.
    """
    names = {field.name for field in dataclasses.fields(Ceilings)}
    if not isinstance(entry, dict) or set(entry) != names:
        raise ValueError(f"an entry must have the keys {', '.join(sorted(names))} and no others")
    return Ceilings(**entry)


def _is_usable(entry: Any) -> bool:
    try:
        _from_entry(entry)
    except ValueError:
        return False
    return True


def _of_this(ceilings: Ceilings, environment: Mapping[str, str]) -> Ceilings:
    """Refuse what stands under the name of another.

    Raises:
        ValueError: The ceilings are of another GPU or other software.
    """
    if (ceilings.device, ceilings.software) != (environment["gpu"], _software(environment["cuda"])):
        raise ValueError("its entry of this GPU is of another GPU or other software")
    return ceilings


def measure(device: torch.device) -> Ceilings:
    """Measure a GPU that does nothing else; takes a few seconds.

    Flags are left as they were, and memory but for the workspace that the library of products keeps. Each rate is the
    best of several ways to do the same, each the median of calls in a row: a ceiling that a candidate can beat is none.

    Args:
        device: A CUDA device.

    Raises:
        DeviceError: Too little of its memory is free, or it does not work.
    """
    import torch

    with torch.cuda.device(device), torch.no_grad():
        try:
            rates = {**_bandwidths(device), **_products(device)}
            torch.cuda.empty_cache()
        except RuntimeError as error:  # out of memory, too
            raise DeviceError(f"the ceilings of {device} cannot be measured: {error}") from None
        return Ceilings(
            **{name: rates.get(name) for name in (*BANDWIDTHS, *PRODUCTS)},  # type: ignore[arg-type]
            device=str(torch.cuda.get_device_properties(device).name),
            software=_software(str(torch.version.cuda)),
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def _bandwidths(device: torch.device) -> dict[str, float]:
    """Bytes a second of copying, reading and writing.

    Raises:
        DeviceError: So little memory is free that the L2 cache would take part.
    """
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    size = min(LARGEST_BYTES, free // MEMORY_PART) // GRAIN_BYTES * GRAIN_BYTES
    least = LEAST_CACHES * torch.cuda.get_device_properties(device).L2_cache_size
    if size < max(GRAIN_BYTES, least):
        raise DeviceError(
            f"the ceilings of {device} cannot be measured: {free / 2**30:.1f} GiB of its memory are free, and it takes "
            f"{least * MEMORY_PART / 2**30:.1f}; end what else runs on it"
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
    """Flop/s of products by kind; torch's flag for TF32 is as it was afterwards."""
    import torch

    kinds = {"fp32": (torch.float32, "ieee"), "fp16": (torch.float16, "ieee")}
    if torch.cuda.get_device_capability(device) >= (8, 0):
        kinds |= {"tf32": (torch.float32, "tf32"), "bf16": (torch.bfloat16, "ieee")}
    flags = torch.backends.cuda.matmul
    before = flags.fp32_precision
    try:
        rates = {}
        for kind, (dtype, precision) in kinds.items():
            flags.fp32_precision = precision  # allow_tf32 by its newer name, which warns of nothing
            rates[kind] = max(_product_rate(rows, dtype, device) for rows in ROWS)
        return rates
    finally:
        flags.fp32_precision = before


def _product_rate(rows: int, dtype: torch.dtype, device: torch.device) -> float:
    """Flop/s of one product, the second operand transposed as a linear layer's weight is."""
    import torch

    # Drawn, not filled: zeros take less power, and a GPU at its power limit would then run faster than it can.
    left = torch.randn(rows, WIDTH, dtype=dtype, device=device)
    right = torch.randn(WIDTH, WIDTH, dtype=dtype, device=device)
    product = torch.empty(rows, WIDTH, dtype=dtype, device=device)
    return 2 * rows * WIDTH * WIDTH / _fastest_s(device, lambda: torch.mm(left, right.t(), out=product))


def _fastest_s(device: torch.device, *calls: Callable[[], object]) -> float:
    """Seconds that the fastest of some calls takes."""
    return min(_median_s(device, call) for call in calls)


def _median_s(device: torch.device, call: Callable[[], object]) -> float:
    """Median of the seconds between events around calls in a row, whose launches hide behind a kernel that spins."""
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
