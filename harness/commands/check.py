"""``check``: checks every access of the kernels on the emulator, as ``evaluate --check`` does."""

from __future__ import annotations

import click

from harness.commands import evaluate

#: Options of ``evaluate`` that ``check`` does not need, since it runs on the emulator and times
#: nothing.
_WITHOUT = frozenset({"check", "device", "fail_below", "rivals", "no_timing", "replay"})
_NOT_TIMED = {"fail_below": None, "rivals": (), "no_timing": False, "replay": None}


@click.command(
    "check",
    params=[option for option in evaluate.command.params if option.name not in _WITHOUT],
    help=evaluate.CHECK_HELP,
)
@click.pass_context
def command(context: click.Context, /, **options: object) -> int:
    """Checks solutions."""
    code: int = context.invoke(evaluate.command, **options, check=True, device="cpu", **_NOT_TIMED)
    return code
