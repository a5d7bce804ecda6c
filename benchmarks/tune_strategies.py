"""Compares the strategies of `tune` on a recorded search, by replaying it without a device.

    python -m benchmarks.tune_strategies                       # on the made space below
    python -m benchmarks.tune_strategies results.json          # on a search of your own
    python -m benchmarks.tune_strategies -o made.json          # write the made space, for tune --simulate

The made space is no measurement. It is the space of the template
`gemm_bias_add_hardtanh_mish_group_norm` with `gemm=tiled`, and its times come from a model of a GPU: a
block's registers and shared memory limit how many blocks are resident, resident warps hide latency,
whole waves of blocks are paid for, loads of tiles and of partial sums compete for bandwidth. Settings
that spill are slow, one corner of the space gives wrong results, as after a bug, and each time has noise
of its own. It shows whether a strategy copes with interactions and failures, not how it does
on your kernel.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import statistics
from collections.abc import Mapping
from pathlib import Path

from harness.rendering.render_templates import find_template
from harness.rendering.values import Value
from harness.tuning.results import Recorded, Trial, read_recorded
from harness.tuning.simulation import median_evaluations, replays
from harness.tuning.space import axes_of, build_space
from harness.tuning.strategies import STRATEGIES

REPOSITORY = Path(__file__).resolve().parents[1]
TEMPLATE = "gemm_bias_add_hardtanh_mish_group_norm"
#: What of the template's space is recorded: 5,328 valid settings.
NARROWED = {
    "gemm": "tiled", "threads": "64,128,256,512", "values_per_thread": "4", "rows_per_block": "4,16,64",
    "rows_in_flight": "2",
}  # fmt: skip
SIZE_M, SIZE_N, SIZE_K = 1024, 8192, 8192
PROCESSORS = 132
NOISE = 0.004


def modelled_ms(setting: Mapping[str, Value]) -> float | None:
    """Returns the time by the model, in milliseconds; None for the planted corner of wrong results."""
    bm, bn, bk, tm, tn, depth = (
        int(setting[name]) for name in ("block_m", "block_n", "block_k", "thread_m", "thread_n", "partial_depth")
    )
    threads = (bm // tm) * (bn // tn)
    registers = 2 * tm * tn + 2 * (tm + tn) + 4 * (bm + bn) * bk // (4 * threads) + 28
    if bk == 32 and tm > tn:
        return None
    spills = max(0, registers - 200) / 40
    resident = min(
        65536 // (min(registers, 255) * threads), 2048 // threads, 228 * 1024 // (8 * bk * (bm + bn + 8)), 32
    )
    warps = resident * threads / 32
    hidden = 1 - math.exp(-warps * (tm * tn) ** 0.5 / 130)
    reuse = tm * tn / (tm * tn + 2.5 * (tm + tn))
    steps = bk / (bk + 3.0)
    blocks = math.ceil(SIZE_M / bm) * math.ceil(SIZE_N / bn)
    waves = math.ceil(blocks / (PROCESSORS * resident)) * PROCESSORS * resident / blocks
    compute = 2 * SIZE_M * SIZE_N * SIZE_K / 60e9 / (hidden * reuse * steps) * min(waves, 4.0)
    traffic = 4 * SIZE_K * SIZE_M * SIZE_N * (1 / bm + 1 / bn) / 4.5e9
    partial = 8 * SIZE_M * SIZE_N * (SIZE_K / depth - 1) / 2.4e9 * (1.4 if threads < 128 else 1.0)
    rounding = 1 + 0.03 * (depth >= 2048) * (tm * tn == 64)
    product = (max(compute, traffic) + 0.3 * min(compute, traffic) + partial) * (1 + spills) * rounding
    around, rows = int(setting["threads"]), int(setting["rows_per_block"])
    tail = math.ceil(SIZE_M / rows * 8192 / (4 * around) / PROCESSORS) * PROCESSORS / (SIZE_M / rows * 2048 / around)
    behind = 40 * 4 * SIZE_M * SIZE_N / 3e9 * min(tail, 8.0) * (1 + 12 / rows) * (1 + abs(math.log2(around / 256)) / 8)
    clean = product + behind
    return clean * math.exp(NOISE * _normal(setting))


def _normal(setting: Mapping[str, Value]) -> float:
    """Returns a number from the normal distribution that depends on the setting alone."""
    digest = hashlib.sha256(repr(sorted(setting.items())).encode()).digest()
    first, second = (int.from_bytes(digest[at : at + 6], "big") / 2**48 for at in (0, 6))
    return math.sqrt(-2 * math.log(first + 1e-15)) * math.cos(2 * math.pi * second)


def made_search() -> Recorded:
    """Returns an exhaustive search of the made space."""
    declaration = find_template(REPOSITORY, TEMPLATE)
    space = build_space(declaration, axes_of(declaration, NARROWED))
    start = declaration.resolve({"gemm": "tiled"})
    eager_ms = 2.0
    trials = []
    for number in range(space.size):
        setting = space.settings(space.at(number))
        time_ms = modelled_ms(setting)
        if time_ms is None:
            trials.append(Trial(setting, "WRONG_OUTPUT", message="full: planted"))
        else:
            trials.append(Trial(setting, "PASSED", time_ms / eager_ms, time_ms))
    return Recorded(TEMPLATE, declaration.problem, "a model, no device", ("full",), space.names, start, tuple(trials))


def main() -> None:
    """Prints a table of strategies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, help="file of a search; without it, the made space")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--ahead", type=int, default=0, help="settings chosen before the result of the one before them")
    parser.add_argument("--strategy", action="append", choices=STRATEGIES, help="repeatable; all by default")
    parser.add_argument("-o", "--output", type=Path, help="write the made space to this file, and replay nothing")
    arguments = parser.parse_args()
    if arguments.output is not None:
        arguments.output.write_text(made_search().to_json())
        return
    recorded = made_search() if arguments.results is None else read_recorded(arguments.results)
    timed = sorted(one.cost for one in recorded.trials if one.cost is not None)
    near = sum(cost <= timed[0] * 1.01 for cost in timed)
    size = len(recorded.trials)
    print(f"{recorded.template} on {recorded.device}: {size} settings, {size - len(timed)} failed")
    print(f"{near} within 1 % of the best; median setting {statistics.median(timed) / timed[0]:.1f} times as slow")
    print("| strategy | evaluations to within 1 % (median) | seeds that arrive within a tenth | worst after a tenth |")
    print("|---|---|---|---|")
    for strategy in arguments.strategy or STRATEGIES:
        tenth = replays(recorded, strategy, size // 10, range(arguments.seeds), arguments.ahead)
        arrived = sum(one.evaluations is not None for one in tenth)
        worst = max(one.lead or math.inf for one in tenth)
        middle = median_evaluations(tenth) or median_evaluations(
            replays(recorded, strategy, size, range(arguments.seeds), arguments.ahead)
        )
        print(f"| {strategy} | {middle:.0f} | {arrived} of {len(tenth)} | {(worst - 1) * 100:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
