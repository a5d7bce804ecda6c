"""Kernel Tuner on the space of a recorded `tune`: settings and minutes until it is within 1 % of the best.

    python3 -m benchmarks.tune_rival all.json                    # replay its strategies on the recorded costs
    python3 -m benchmarks.tune_rival all.json --measure          # compile and time for real, on the GPU that is there

For a search of group norm's forward: `python -m harness tune group_norm --forward-only --set batch_size=16
--strategy exhaustive -o all.json`. It needs the package `kernel_tuner`. Its space is that of the search, each setting
that was judged. With `--measure` it compiles the CUDA source that the template renders, behind a C function that calls
the template's own launcher and returns milliseconds, and measures it as it does by default: seven calls. It has no
judge: a setting that gives wrong results is a setting. Says for each seed after how many settings, and with
`--measure` after how many seconds, it had one whose recorded cost is within 1 % of the best.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import table
from harness.rendering.render_templates import find_template, render_text
from harness.rendering.values import Value
from harness.tuning.results import Recorded, read_recorded
from harness.tuning.simulation import WITHIN

REPOSITORY = Path(__file__).resolve().parents[1]
STRATEGIES = (
    "random_sample", "greedy_ils", "genetic_algorithm", "simulated_annealing", "diff_evo", "pso", "firefly_algorithm",
    "mls", "bayes_opt",
)  # fmt: skip
#: What the template's rules say, and that a parameter without meaning keeps its default.
RULES = (
    "vector_width * unroll <= 32", "threads * vector_width * unroll <= 16384",
    "fusion != 'fused' or tiles_per_block == 4",
)  # fmt: skip
#: What Kernel Tuner writes in place of a time of a setting that failed.
FAILED = "RuntimeFailedConfig"
#: Behind the template's source: group norm's forward over 64 channels in 8 groups, 512 x 512, as in the problem.
WRAPPER = r"""
#include <cuda_runtime.h>
extern "C" float tuned() {
  using namespace OP_NAMESPACE;
  const Shape shape = {%d, 64, 8, 512 * 512};
  const int64_t count = shape.samples * shape.channels * shape.spatial;
  static float* buffers[6] = {};
  const int64_t sizes[6] = {count, count, 64, 64, 4 * shape.samples * shape.groups, forward_scratch(shape) + 1};
  for (int i = 0; i < 6; ++i) {
    if (buffers[i] == nullptr) {
      if (cudaMalloc(&buffers[i], sizes[i] * sizeof(float)) != cudaSuccess) return -1.0f;
      cudaMemset(buffers[i], 0, sizes[i] * sizeof(float));
    }
  }
  cudaEvent_t from, to;
  cudaEventCreate(&from);
  cudaEventCreate(&to);
  cudaEventRecord(from);
  const LaunchStatus status = launch_forward(buffers[0], buffers[2], buffers[3], shape, 1e-5f, buffers[1], buffers[4],
                                             buffers[4] + shape.samples * shape.groups, buffers[5], 0, nullptr);
  cudaEventRecord(to);
  cudaEventSynchronize(to);
  float milliseconds = -1.0f;
  cudaEventElapsedTime(&milliseconds, from, to);
  cudaEventDestroy(from);
  cudaEventDestroy(to);
  return status.kernel == nullptr && cudaGetLastError() == cudaSuccess ? milliseconds : -1.0f;
}
"""


def source_of(setting: Mapping[str, Any], samples: int) -> str:
    """Returns the setting's CUDA source behind macros for float32, and the function that times it."""
    text = render_text(REPOSITORY, find_template(REPOSITORY, "group_norm"), dict(setting))
    parts = {name: text.split(f'\n{name} = r"""', 1)[1].split('"""', 1)[0] for name in ("LAUNCHERS", "CUDA_SOURCE")}
    head = "#define OP_NAMESPACE tuned_kernels\n#define ELEMENT float\n#define WEIGHT float\n#define HALVES 0\n"
    return head + parts["LAUNCHERS"] + parts["CUDA_SOURCE"] + WRAPPER % samples


def key_of(setting: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """Returns a setting as Kernel Tuner names it in a cache."""
    return ",".join(str(setting[name]) for name in names)


def cache_of(recorded: Recorded, parameters: Mapping[str, list[Value]]) -> dict[str, Any]:
    """Returns a cache of Kernel Tuner with the recorded costs as times."""
    times = {key_of(one.settings, recorded.names): one for one in recorded.trials}
    return {
        "device_name": "recorded",
        "kernel_name": "tuned",
        "problem_size": [1, 1],
        "tune_params_keys": list(parameters),
        "tune_params": dict(parameters),
        "objective": "time",
        "cache": {
            key: {**one.settings, "time": FAILED if one.cost is None else one.cost, "compile_time": 0,
                  "verification_time": 0, "benchmark_time": 0, "strategy_time": 0, "framework_time": 0,
                  "timestamp": "2026-01-01 00:00:00.000000+00:00", "times": [one.cost]}
            for key, one in times.items()
        },
    }  # fmt: skip


@contextlib.contextmanager
def cache_file(recorded: Recorded, parameters: Mapping[str, list[Value]]) -> Iterator[Path]:
    """Writes that cache to a file."""
    with tempfile.TemporaryDirectory(prefix="kernel-tuner-") as folder:
        path = Path(folder) / "cache.json"
        path.write_text(json.dumps(cache_of(recorded, parameters), indent=0))
        yield path


def searched(recorded: Recorded, strategy: str, budget: int, *, cache: Path | None, samples: int) -> list[float]:
    """Runs Kernel Tuner; returns the recorded cost of each setting in the order in which it came to them."""
    import kernel_tuner

    costs = {key_of(one.settings, recorded.names): one.cost for one in recorded.trials}
    parameters = parameters_of(recorded)
    found: list[float] = []
    began = datetime.datetime.now(datetime.UTC)

    def source(setting: Mapping[str, Any]) -> str:
        return source_of({name: setting[name] for name in recorded.names}, samples)

    with (
        tempfile.TemporaryDirectory() as folder,  # for what it compiles
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        results, _ = kernel_tuner.tune_kernel(
            "tuned", source, (1, 1), [], parameters,
            restrictions=list(RULES),
            defines={}, lang="C", compiler="nvcc", compiler_options=["-O1", "-std=c++17", "-arch=sm_90a"],
            strategy=strategy, strategy_options={"max_fevals": budget},
            simulation_mode=cache is not None, cache=str(cache) if cache else None,
        )  # fmt: skip
    for result in results:
        cost = costs[key_of(result, recorded.names)]
        found.append(float("inf") if cost is None else cost)
    if cache is None:
        for result, cost in zip(results, found, strict=True):
            at = datetime.datetime.fromisoformat(result["timestamp"]) - began
            lead = cost / best_of(recorded)
            if result["time"] < 0:
                raise SystemExit(f"{key_of(result, recorded.names)}: its kernels did not run")
            print(f"{strategy} {at.total_seconds():6.1f} s: {result['time']:.4f} ms, recorded {lead:.3f} of the best")
    return found


def parameters_of(recorded: Recorded) -> dict[str, list[Value]]:
    """Returns the values of each parameter."""
    return {name: sorted({one.settings[name] for one in recorded.trials}, key=str) for name in recorded.names}


def best_of(recorded: Recorded) -> float:
    """Returns the best recorded cost."""
    return min(one.cost for one in recorded.trials if one.cost is not None)


def main() -> int:
    """Runs the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("search", type=Path, help="the file of tune -o")
    parser.add_argument("--measure", action="store_true", help="compile and time on the GPU")
    parser.add_argument("--strategy", action="append", help="of Kernel Tuner; repeatable")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=int, help="settings at most [default: all]")
    parser.add_argument("--samples", type=int, default=16, help="the batch's size with --measure")
    options = parser.parse_args()
    recorded = read_recorded(options.search)
    budget = options.budget or len(recorded.trials)
    limit = best_of(recorded) * (1 + WITHIN)
    rows = []
    for strategy in options.strategy or STRATEGIES:
        arrivals: list[float] = []
        for seed in range(1 if options.measure else options.seeds):
            seeded(seed)
            with contextlib.ExitStack() as stack:
                path = None if options.measure else stack.enter_context(cache_file(recorded, parameters_of(recorded)))
                found = searched(recorded, strategy, budget, cache=path, samples=options.samples)
            arrivals.append(next((at for at, cost in enumerate(found, 1) if cost <= limit), float("inf")))
        tenth = sum(one <= len(recorded.trials) / 10 for one in arrivals)
        rows.append((strategy, f"{statistics.median(arrivals):g}", f"{tenth} of {len(arrivals)}"))
    print(table(("strategy", "settings to within 1 % (median)", "seeds within a tenth"), rows))
    return 0


def seeded(seed: int) -> None:
    """Seeds what Kernel Tuner draws from."""
    import numpy

    random.seed(seed)
    numpy.random.seed(seed)


if __name__ == "__main__":
    sys.exit(main())
