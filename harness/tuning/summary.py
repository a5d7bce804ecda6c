"""The result of a search, as text for the terminal and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, TextIO

from rich.markup import escape
from rich.table import Table

from harness.records.record import FEWER_PAIRS
from harness.rendering.values import written
from harness.report.console import open_console
from harness.system.text import one_line, shortened
from harness.timing.statistics import Interval
from harness.tuning.finals import Decision, Rival
from harness.tuning.influence import Influence, influences
from harness.tuning.results import Recorded, Trial
from harness.tuning.run import Order, Progress
from harness.tuning.template import Searched

#: Rows of the table of settings, and of failed settings.
MOST_ROWS = 10
_MOST_MESSAGE = 100


@dataclass(frozen=True)
class Summary:
    """A search and its result.

    Attributes:
        searched: The template.
        order: The order.
        progress: What the search has found.
    """

    searched: Searched
    order: Order
    progress: Progress

    @property
    def has_begun(self) -> bool:
        """True if there is anything to tell; else an error says why not."""
        return bool(self.progress.trials) or self.progress.is_finished

    def fastest(self) -> list[Trial]:
        """Returns the settings with a time, fastest first, without those that failed in the finals."""
        decision = self.progress.decision
        refuted = set(decision.failed) if decision else set()
        timed = [one for one in self.progress.trials if one.cost is not None]
        kept = [one for one in timed if tuple(one.settings.values()) not in refuted]
        return sorted(kept, key=lambda one: one.cost or 0.0)

    def front(self) -> list[Trial]:
        """Returns the settings that no other one beats in both objectives, fastest first; none for one objective."""
        found: list[Trial] = []
        name = self.order.against
        for one in self.fastest() if name else ():
            value = one.objective(name)
            if value is not None and (not found or value < (found[-1].objective(name) or 0.0)):
                found.append(one)
        return found

    def improvements(self) -> list[tuple[int, Trial]]:
        """Returns each setting that was the fastest so far, with the number of settings judged by then."""
        found: list[tuple[int, Trial]] = []
        for number, one in enumerate(self.progress.trials, start=1):
            if one.cost is not None and (not found or one.cost < (found[-1][1].cost or 0.0)):
                found.append((number, one))
        return found

    def influences(self) -> list[Influence]:
        """Returns the main effects of the parameters; none without enough times."""
        return influences(self.progress.trials, self.searched.counts)

    def counts(self) -> str:
        """Returns how many settings passed and failed, by status."""
        statuses = Counter(one.status for one in self.progress.trials)
        ordered = sorted(statuses.items(), key=lambda item: (-item[1], item[0]))
        passed = sum(one.has_passed for one in self.progress.trials)
        failed = ", ".join(f"{count} {status}" for status, count in ordered if status != "PASSED")
        return f"{passed} passed, {len(self.progress.trials) - passed} failed{f': {failed}' if failed else ''}"


def as_recorded(summary: Summary, more_fields: Mapping[str, Any] = MappingProxyType({})) -> Recorded:
    """Returns the search as its file has it, with further fields."""
    searched, order, progress = summary.searched, summary.order, summary.progress
    more = {
        "strategy": order.strategy, "seed": order.seed, "valid_settings": searched.space.size,
        "values": dict(zip(searched.space.names, map(list, searched.space.axes), strict=True)),
        "is_finished": progress.is_finished, "same_text": progress.same, "notes": list(searched.notes),
        "best_so_far": [
            {"settings_judged": number, "settings": dict(one.settings), "cost": one.cost}
            for number, one in summary.improvements()
        ],
        "influence": [
            {**asdict(one), "effects": [{"value": value, "ratio": ratio} for value, ratio in one.effects.items()]}
            for one in summary.influences()
        ],
        "front": [dict(one.settings) for one in summary.front()],
        "finals": None if progress.decision is None else _decision_object(searched, progress.decision),
        **more_fields,
    }  # fmt: skip
    return Recorded(
        searched.declaration.template,
        searched.declaration.problem,
        progress.machine or progress.device,
        progress.cases,
        searched.space.names,
        searched.start,
        tuple(progress.trials),
        more,
    )


def _decision_object(searched: Searched, decision: Decision) -> dict[str, Any]:
    return {
        "winner": None if decision.winner is None else searched.space.settings(decision.winner),
        "rounds": decision.rounds,
        "finalists": [
            {
                "settings": searched.space.settings(one.finalist.point), "cost": one.finalist.cost,
                "verdict": str(one.verdict), "records": one.finalist.records,
                "behind": {case: _figures(lead) for case, lead in one.leads.items()},
            }
            for one in decision.rivals
        ],
        "failed": [searched.space.settings(point) for point in decision.failed],
    }  # fmt: skip


def _figures(lead: Interval) -> list[float]:
    return [lead.ratio, lead.low, lead.high]


def print_summary(summary: Summary, stream: TextIO) -> None:
    """Prints the result of a search."""
    console = open_console(stream)
    order, progress, space = summary.order, summary.progress, summary.searched.space
    stored = sum(one.is_stored for one in progress.trials)
    where = progress.machine or progress.device
    cases = f", case {', '.join(progress.cases)}" if progress.cases else ""
    title = (
        f"{summary.searched.declaration.template} on {where}{cases}: {len(progress.trials)} of {space.size:,} valid "
        f"settings, strategy {order.strategy}, seed {order.seed}"
    )
    console.print(f"[bold]{escape(one_line(title))}[/bold]")
    for line in _tables(summary):
        console.print(line)
    console.print(escape(summary.counts()) + (f" ({stored} from the store)" if stored else ""))
    print_sentences(_sentences(summary), stream)


def print_sentences(sentences: Iterable[str], stream: TextIO) -> None:
    """Prints sentences, each on its own line."""
    console = open_console(stream)
    for sentence in sentences:
        console.print(escape(one_line(sentence)))


def _tables(summary: Summary) -> Iterator[Table]:
    fastest = summary.fastest()
    if fastest:
        table = _table("setting", ">ms", ">of eager's time", "record")
        for one in fastest[:MOST_ROWS]:
            time_ms = "-" if one.time_ms is None else f"{one.time_ms:.4g}"
            _row(table, summary.searched.label(one.settings), time_ms, f"{one.cost:.4f}", one.records[0])
        yield table
    front = summary.front()
    if front:
        against = summary.order.against
        table = _table(
            "not beaten in both", ">of eager's time", ">error" if against == "error" else ">peak MiB", "record"
        )
        for one in front:
            value = (one.objective(against) or 0.0) / (1 if against == "error" else 2**20)
            _row(table, summary.searched.label(one.settings), f"{one.cost:.4f}", f"{value:.6g}", one.records[0])
        yield table
    failed = [one for one in summary.progress.trials if not one.has_passed]
    if failed:
        table = _table("failed setting", "status", "record", "why")
        for one in failed[:MOST_ROWS]:
            why = shortened(one.message, _MOST_MESSAGE)
            _row(table, summary.searched.label(one.settings), one.status, *(one.records[:1] or ("-",)), why)
        yield table
    found = summary.influences()
    if found:
        table = _table("parameter", ">explains", "time by value, 1 is the mean of those measured")
        for effect in found:
            effects = sorted(effect.effects.items(), key=lambda item: item[1])
            words = ", ".join(f"{written(value)}: {ratio:.3f}" for value, ratio in effects[:6])
            _row(table, effect.name, f"{100 * effect.share:.0f} %", words + (", ..." if len(effects) > 6 else ""))
        yield table


def _sentences(summary: Summary) -> Iterator[str]:
    searched, progress = summary.searched, summary.progress
    for number, one in summary.improvements():
        yield f"after {number} settings: {one.cost:.4f} of eager's time, {searched.label(one.settings)}"
    if progress.same:
        yield f"{progress.same} settings have the text of another one and share its result"
    failed = sum(not one.has_passed for one in progress.trials)
    if failed > MOST_ROWS:
        yield f"{failed - MOST_ROWS} more failed settings: --json lists all"
    untimed = [one for one in progress.trials if one.has_passed and one.cost is None]
    if progress.device != "cpu" and untimed:
        why = f": {untimed[0].message}" if untimed[0].message else f": see `show {untimed[0].records[0]}`"
        yield f"{len(untimed)} settings passed without a time{why}"
    few = sum(FEWER_PAIRS in one.message for one in progress.trials if one.cost is not None)
    if few:
        yield f"{few} settings were timed in fewer pairs, since they are far behind the fastest one"
    if progress.device == "cpu":
        yield "correctness only: the emulator measures no speed, so no setting is named the fastest"
    elif progress.decision is not None:
        yield from _decision_sentences(searched, progress.decision)
    if progress.is_out_of_time:
        yield "stopped after --minutes; run the same command again to continue"
    if not progress.is_finished:
        yield "interrupted: the store has all results above; run the same command again to continue"


def _decision_sentences(searched: Searched, decision: Decision) -> Iterator[str]:
    def label(one: Rival) -> str:
        return searched.label(searched.space.settings(one.finalist.point))

    for point in decision.failed:
        yield f"out of the finals: {searched.label(searched.space.settings(point))} failed in full, or lost its time"
    for one in decision.rivals[1:]:
        leads = ", ".join(
            f"{case} {lead.ratio:.3f}x [{lead.low:.3f}, {lead.high:.3f}]" for case, lead in one.leads.items()
        )
        yield f"finals: {label(decision.rivals[0])} over {label(one)}: {leads} {one.verdict}"
    if not decision.rivals:
        yield "no winner: no finalist passed in full with a time"
    elif decision.winner is None:
        yield f"no winner: {label(decision.rivals[0])} is ahead, but that may be noise ({decision.rounds} more rounds)"
    else:
        words = searched.label(searched.space.settings(decision.winner))
        is_first = decision.winner == decision.rivals[0].finalist.point
        yield f"winner: {words}" + ("" if is_first else ", which is as fast as the fastest, and simpler")


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(escape(name.removeprefix(">")), justify="right" if name[0] == ">" else "left", overflow="fold")
    return table


def _row(table: Table, *cells: str) -> None:
    table.add_row(*(escape(one_line(cell)) for cell in cells))
