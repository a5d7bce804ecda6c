"""Logs runs to Weights & Biases, with the package ``wandb``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from harness.errors import UsageError
from harness.package import VERSION
from harness.records.record import EvaluationRecord
from harness.report.export_rows import COLUMNS, row
from harness.report.extras import imported
from harness.report.sample_scores import results_of
from harness.system.text import one_line, printable
from harness.timing.sample_scores import overall

#: Log what is asked for: not this program's output, its code or its repository.
_QUIET = {"console": "off", "save_code": False, "disable_git": True}


def log_run(project: str, name: str, records: Sequence[EvaluationRecord], folder: str | None) -> None:
    """Logs a run: a table of its records, and its scores as the summary.

    wandb reads its own variables, such as ``WANDB_MODE=offline``.

    Args:
        project: Name of the project in Weights & Biases.
        name: Name of the run.
        records: Its records; at least one.
        folder: Folder for wandb's files; None for wandb's own choice.

    Raises:
        UsageError: wandb is not installed, or refuses.
    """
    wandb = imported("wandb", "--wandb")
    config = {"harness": VERSION, "devices": sorted({record.device for record in records})}
    try:
        run = wandb.init(
            project=project,
            name=one_line(name),
            dir=folder,
            job_type="kernel-harness",
            config={**config, "precisions": sorted({str(record.precision_class) for record in records})},
            settings=wandb.Settings(**_QUIET),
        )
        rows = [[_cell(value) for value in row(record).values()] for record in records]
        run.log({"records": wandb.Table(columns=list(COLUMNS), data=rows, allow_mixed_types=True)})
        run.summary.update(summary(records))
        run.finish()
    except wandb.errors.Error as error:
        raise UsageError(f"--wandb: {one_line(str(error))}") from None


def summary(records: Sequence[EvaluationRecord]) -> dict[str, float]:
    """Returns the scores of records over all their models and levels, by name."""
    score = overall(results_of(records))
    found: dict[str, float] = {name: getattr(score, name) for name in ("problems", "solved", "samples", "correct")}
    found |= {f"pass@{k}": share for k, share in score.pass_at.items()}
    for direction, mean in score.mean.items():
        found[f"timed_{direction}"] = score.timed[direction]
        found[f"geometric_mean_{direction}"] = mean.ratio
        found |= {f"fast_{p:g}_{direction}": share.best for p, share in score.fast.get(direction, {}).items()}
    return found


def _cell(value: Any) -> Any:
    """Returns a value that the service can show: JSON has no infinity, and text no control characters."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return printable(value) if isinstance(value, str) else value
