"""``store``: merges the records of other machines into a store."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from harness.errors import EXIT_NOT_PASSED, EXIT_PASSED, UsageError
from harness.project.paths import expanded, harness_home
from harness.project.settings import SettingsGroup, option
from harness.records.merging import Conflict, Taken, merge
from harness.records.record import EvaluationRecord
from harness.records.store import FILE_NAME, Store
from harness.report.speed_comparison import machine
from harness.system.text import one_line


@click.group("store", cls=SettingsGroup)
def command() -> None:
    """Merge the records of several machines.

    \b
    Examples:
      python -m harness store merge /mnt/machine_a /mnt/machine_b
      python -m harness store merge a/store.db b/store.db --home both
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines


@command.command("merge")
@click.argument("others", nargs=-1, required=True, metavar="OTHER...")
@click.option("--all", "takes_all", is_flag=True, help="Also take records whose key and verdict the store already has.")
@option("home")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def merge_command(others: tuple[str, ...], takes_all: bool, home: str | None, as_json: bool) -> int:
    """Merge the records of OTHER stores into the store of --home.

    OTHER is a HARNESS_HOME or the store file in it. The merge takes all stores or none: if one of
    them is damaged or comes from a newer harness, it writes nothing. It only reads the other
    stores.

    A record's key identifies what was judged, as for `evaluate`. The store may already have a
    record with the same key. Then the merge takes a new one only if it has another verdict or adds
    a missing speed. It reports another verdict as a conflict, and the exit code is 1.

    \b
    Examples:
      python -m harness store merge /mnt/machine_a /mnt/machine_b
      python -m harness store merge a b --home both --all
    """  # noqa: D301 - \b is click's mark for a paragraph that keeps its lines
    folder = harness_home(home)
    files = [_file(other, folder / FILE_NAME) for other in others]
    with contextlib.ExitStack() as stack:
        sources = [stack.enter_context(Store(file.parent, name=file.name)) for file in files]
        target = stack.enter_context(Store(folder, writable=True))
        taken = merge(target, sources, takes_all)
    if as_json:
        print(json.dumps({"store": str(target.path), "sources": list(map(_object, others, taken))}))
    else:
        _print(target.path, others, taken)
    return EXIT_NOT_PASSED if any(one.conflicts or one.clashes for one in taken) else EXIT_PASSED


def _file(other: str, target: Path) -> Path:
    """Returns the store file that an argument names.

    Raises:
        UsageError: There is no store, or it is the target of the merge.
    """
    path = expanded(other)
    file = path / FILE_NAME if path.is_dir() else path
    if not file.is_file():
        raise UsageError(
            f"{one_line(other)}: no store there; name a store file, or a HARNESS_HOME that contains {FILE_NAME}"
        )
    if target.is_file() and file.samefile(target):
        raise UsageError(f"{one_line(other)} is the store to merge into; name other stores, or another --home")
    return file


def _object(other: str, taken: Taken) -> dict[str, object]:
    conflicts = [
        {**_question(one.here), **{side: _side(getattr(one, side)) for side in ("here", "there")}}
        for one in taken.conflicts
    ]
    return {"source": other, **asdict(taken), "conflicts": conflicts}


def _question(record: EvaluationRecord) -> dict[str, str]:
    return {
        "problem": record.problem, "solution": record.solution, "case": record.case, "device": machine(record)
    }  # fmt: skip


def _side(record: EvaluationRecord) -> dict[str, str | None]:
    return {
        "record": record.record, "status": str(record.status), "rule": record.rule, "created_at": record.created_at
    }  # fmt: skip


def _print(path: Path, others: Sequence[str], taken: Sequence[Taken]) -> None:
    for other, one in zip(others, taken, strict=True):
        words = [f"{one.added} records added"]
        words += [f"{one.known} already here"] if one.known else []
        words += [f"{one.answered} left out: a record here has the same key and verdict"] if one.answered else []
        print(one_line(f"{other}: {', '.join(words)}"))
        for conflict in one.conflicts:
            print(one_line(f"  conflict: {_words(conflict)}; both are kept, and the newer one answers"))
        for name in one.clashes:
            print(one_line(f"  conflict: another record here has the name {name}; left that one out"))
    print(f"merged into {one_line(str(path))}")


def _words(conflict: Conflict) -> str:
    here, there = conflict
    sides = [
        f"{one.status}{f', rule {one.rule}' if one.rule else ''} {where} (record {one.record}, {one.created_at})"
        for one, where in ((here, "here"), (there, "there"))
    ]
    return f"{here.solution} on {here.problem}, case {here.case}, {machine(here)}: {', '.join(sides)}"
