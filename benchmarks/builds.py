"""What cold builds take: every rendered solution, and candidates that include torch/extension.h, those also plainly.

Each build has a process and a folder of its own, one after another; torch is imported and the GPU in use before the
clock runs, which then counts the solution's import: all that ``load_inline`` does, to the loaded library. On a GPU
"plain" is torch's own ``load_inline``, for the GPU's own architecture; on the CPU, where torch has none for CUDA, it is
the emulator's build with torch's own headers. Two minutes on 16 cores with an H200.

    python3 -m benchmarks.builds --device cuda:0
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
RENDERED = REPOSITORY / "solutions"
#: As models write them; two, since a plain build takes most of a minute.
CANDIDATES = (
    REPOSITORY / "tests" / "commands" / "answers" / "group_norm.py",
    REPOSITORY / "tests" / "snippets" / "scaled_silu.py",
)


def built(solution: Path, device: str, home: Path, plain: bool) -> dict[str, Any]:
    """Seconds of a solution's import in this process, its builds included, and why stand-ins were not used."""
    import torch
    from torch.utils import cpp_extension

    from harness.emulator import toolchain
    from harness.executors.tools import tools_for
    from harness.worker.candidate import import_solution
    from harness.worker.platforms import platform_for

    platform = platform_for(device, tools_for(device, home).libraries)
    with tempfile.TemporaryDirectory() as folder:
        loader: Any = platform.loader(solution, {}, Path(folder), lambda what, name: None)
        if plain and device == "cpu":
            vars(toolchain)["needs_real_headers"] = lambda text, names: True
        if plain and device != "cpu":
            os.environ["TORCH_CUDA_ARCH_LIST"] = "{}.{}".format(*torch.cuda.get_device_capability(device))
            os.environ["TORCH_EXTENSIONS_DIR"] = folder
            os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # ninja
        else:
            vars(cpp_extension)["load_inline"] = loader.load_inline
        with platform.running():
            started = time.perf_counter()
            import_solution(str(solution))
            seconds = time.perf_counter() - started
    return {"seconds": seconds, "plain": "; ".join(filter(None, getattr(loader, "plain", {}).values()))}


def measured(solution: Path, device: str, home: Path, plain: bool) -> dict[str, Any]:
    """The same from a fresh process.

    Raises:
        SystemExit: It failed, with what it printed.
    """
    command = [sys.executable, "-m", "benchmarks.builds", "--device", device, "--home", str(home)]
    command += ["--one", str(solution), *(["--plain"] if plain else [])]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{solution} does not build:\n{ran.stdout}{ran.stderr}")
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def table(device: str, home: Path, say: Callable[[str], None]) -> None:
    """Print the table, a line as it is known."""
    say(f"| cold build on {device}, {os.cpu_count()} cores | plain (s) | with stand-ins (s) | |")
    say("|---|---|---|---|")
    for solution in CANDIDATES:
        before, after = (measured(solution, device, home, plain) for plain in (True, False))
        faster = f"{before['seconds'] / after['seconds']:.1f} times as fast"
        name = solution.relative_to(REPOSITORY)
        say(f"| `{name}` | {before['seconds']:.1f} | {after['seconds']:.1f} | {after['plain'] or faster} |")
    for solution in sorted(RENDERED.glob("*/*.py")):
        found = measured(solution, device, home, plain=False)
        say(f"| `{solution.relative_to(RENDERED).with_suffix('')}` | | {found['seconds']:.1f} | |")


def main() -> int:
    """Run from the command line; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--home", type=Path, help="where the emulator's runtime is kept (default: as the harness's)")
    parser.add_argument("--one", type=Path, metavar="SOLUTION", help="build this one in this process, and print JSON")
    parser.add_argument("--plain", action="store_true", help="with --one: without stand-ins for torch's headers")
    options = parser.parse_args()
    from harness.project.paths import harness_home

    home = harness_home(str(options.home) if options.home else None)
    if options.one is not None:
        print(json.dumps(built(options.one.resolve(), options.device, home, options.plain)))
    else:
        table(options.device, home, lambda line: print(line, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
