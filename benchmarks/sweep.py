"""Time settings of a template on one GPU, side by side: which variant should be the default?

    python -m benchmarks.sweep group_norm threads=256,512 unroll=2,4 --case full

Every combination is rendered, built (in parallel) and timed in turns with CUDA events: forward under ``no_grad``, and
forward with backward. Prints medians in milliseconds over the rounds, best forward+backward first. Correctness is not
checked here: ``python -m harness evaluate`` does that.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import torch

from benchmarks.common import milliseconds
from harness.errors import TemplateError
from harness.project.paths import project_root
from harness.project.problems import load
from harness.project.solutions import find_problem
from harness.rendering.render_templates import find_template, render_text

ROUNDS = 7


def import_file(path: Path) -> ModuleType:
    """Import a rendered solution."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Render, build, time, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("template")
    parser.add_argument("settings", nargs="*", help="name=value[,value...]")
    parser.add_argument("--case", default="full")
    options = parser.parse_args()
    names = [setting.partition("=")[0] for setting in options.settings]
    choices = [setting.partition("=")[2].split(",") for setting in options.settings]
    root = project_root()
    template = find_template(root, options.template)
    problem = find_problem(root, template.problem)
    module = load(problem, problem.case(options.case))
    folder = Path(tempfile.mkdtemp())
    files: dict[str, Path] = {}
    for values in itertools.product(*choices):
        label = " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
        try:
            text = render_text(root, template, template.parse(dict(zip(names, values, strict=True))))
        except TemplateError as error:
            print(f"skipped {label}: {error}", file=sys.stderr)
            continue
        files[label] = folder / f"setting_{len(files)}.py"
        files[label].write_text(text)
    build = [sys.executable, "-c", "import runpy, sys; runpy.run_path(sys.argv[1])"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: subprocess.run([*build, path], check=True), files.values()))
    with torch.device("cuda"):
        (x,) = module.get_inputs()
    models = {"eager": module.model(*module.get_init_inputs()).cuda()}
    models |= {label: import_file(path).ModelNew(*module.get_init_inputs()).cuda() for label, path in files.items()}
    with torch.no_grad():
        cotangent = torch.randn_like(models["eager"](x))
    samples: dict[str, tuple[list[float], list[float]]] = {label: ([], []) for label in models}
    for turn in range(-1, ROUNDS):
        for label, model in models.items():
            with torch.no_grad():
                forward = milliseconds(lambda model=model: model(x))
            leaf = x.detach().requires_grad_()
            both = milliseconds(
                lambda model=model, leaf=leaf: torch.autograd.grad(model(leaf), [leaf, *model.parameters()], cotangent)
            )
            if turn >= 0:
                samples[label][0].append(forward)
                samples[label][1].append(both)
    print("forward ms  forward+backward ms  setting")
    for label, (forward, both) in sorted(samples.items(), key=lambda item: statistics.median(item[1][1])):
        print(f"{statistics.median(forward):10.3f}  {statistics.median(both):19.3f}  {label}")


if __name__ == "__main__":
    main()
