"""Draws the charts of the report as SVG that takes its colours from the page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.report.extras import imported
from harness.report.html.entries import CHEATED, FAILED, PASSED, WRONG, Entry
from harness.report.html.searches import Search
from harness.system.text import one_line, shortened
from harness.timing.sample_scores import DIRECTIONS, Counting, SampleScore
from harness.timing.scores import mapping, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours that stand for the page's own, which differ in the dark.
_INK, _FAINT = "#010203", "#010204"
_OF_KIND = {PASSED: "#010205", WRONG: "#010206", CHEATED: "#010207", FAILED: "#010208"}
_SERIES = tuple(f"#01030{place}" for place in range(6))
_VARIABLES = {
    _INK: "--ink",
    _FAINT: "--faint",
    **{colour: f"--{kind}" for kind, colour in _OF_KIND.items()},
    **{colour: f"--series-{place}" for place, colour in enumerate(_SERIES)},
}
_MARKERS = "osD^vP"
#: The most rows of the forest plot, and lines of other charts.
MOST_ROWS, MOST_LINES = 60, 6
_MOST_NAME = 44
#: Numbers beyond these are no measurements.
_LEAST, _MOST = 1e-12, 1e12


class Chart(NamedTuple):
    """A chart.

    Attributes:
        title: Its title.
        caption: What it shows, over what.
        svg: The drawing.
    """

    title: str
    caption: str
    svg: str


def charts(entries: Sequence[Entry], scores: Sequence[SampleScore], searches: Sequence[Search] = ()) -> list[Chart]:
    """Draws every chart for which there are figures.

    Raises:
        UsageError: matplotlib is missing.
    """
    imported("matplotlib.figure", "report")
    makers = (_forest, _errors, _light, _progress, _clocks)
    found = [maker(entries) for maker in makers]
    return [
        chart for chart in (*found, _fast(scores), _by_tokens(searches), _by_device_s(searches)) if chart is not None
    ]


def _forest(entries: Sequence[Entry]) -> Chart | None:
    timed = [(entry, one) for entry in entries if (one := entry.best) is not None and all(map(_sane, one))]
    timed.sort(key=lambda pair: -pair[1][0])
    if not timed:
        return None
    shown = timed[:MOST_ROWS]

    def draw(axes: Axes) -> None:
        for place, (_, (ratio, low, high)) in enumerate(shown):
            colour = _OF_KIND[PASSED] if low > 1 else _OF_KIND[WRONG] if high < 1 else _INK
            axes.plot([low, high], [place, place], color=colour, linewidth=2)
            axes.plot([ratio], [place], color=colour, marker="o" if low > 1 else "s", markersize=4)
        axes.axvline(1, color=_FAINT, linewidth=1)
        axes.set_xscale("log")
        _plain_log_ticks(axes.xaxis)
        axes.set_yticks(range(len(shown)), [_name(entry) for entry, _ in shown])
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlabel("times as fast as eager")

    more = "" if len(shown) == len(timed) else f" The fastest {len(shown)} of {len(timed)}."
    return Chart(
        "Speedups",
        "Median of paired ratios, eager over candidate, with its 95 % interval, in the slowest case; forward with "
        f"backward where it was timed. Squares are no faster than eager.{more}",
        _svg("forest", draw, (7.2, 1.1 + 0.19 * len(shown))),
    )


def _errors(entries: Sequence[Entry]) -> Chart | None:
    points = [
        (share, one[0], entry)
        for entry in entries
        if (share := _sane(entry.share)) and (one := entry.best) is not None and _sane(one[0])
    ]
    if not points:
        return None

    def draw(axes: Axes) -> None:
        xs, ys = [share for share, _, _ in points], [ratio for _, ratio, _ in points]
        axes.scatter(xs, ys, 18, color=_OF_KIND[PASSED], alpha=0.7)
        axes.set_xscale("log")
        axes.set_yscale("log")
        _plain_log_ticks(axes.yaxis)
        axes.axvline(1, color=_FAINT, linewidth=1)
        axes.axhline(1, color=_FAINT, linewidth=1)
        _plain_log_ticks(axes.xaxis, (1.0,))
        axes.set_xlabel("largest error over its budget (above 1 fails)")
        axes.set_ylabel("times as fast as eager")

    caption = f"{len(points)} timed candidates that passed. Speed that is paid for with precision lies far right."
    return Chart("Error and speed", caption, _svg("errors", draw, (5.2, 3.6)))


def _light(entries: Sequence[Entry]) -> Chart | None:
    points = []
    for entry in entries:
        for record in entry.records:
            for direction, told in record.floor.items():
                share, intensity = _sane((told.get("share") or [None])[0]), _sane(told.get("intensity"))
                if share and intensity:
                    points.append((intensity, share, direction))
    if not points:
        return None

    def draw(axes: Axes) -> None:
        for place, direction in enumerate(DIRECTIONS):
            own = [(x, y) for x, y, of in points if of == direction]
            if own:
                xs, ys = [x for x, _ in own], [y for _, y in own]
                axes.scatter(xs, ys, 18, color=_SERIES[place], marker=_MARKERS[place], label=_words(direction))
        axes.set_xscale("log")
        axes.set_ylim(0, max(1.0, max(y for _, y, _ in points)) * 1.05)
        axes.axhline(1, color=_FAINT, linewidth=1)
        _plain_log_ticks(axes.xaxis, (1.0,))
        axes.set_xlabel("arithmetic intensity of the problem (flops a byte)")
        axes.set_ylabel("share of the speed of light")
        axes.legend(frameon=False)

    caption = "How much of the least possible time each case takes, by the device's measured bandwidth and rate."
    return Chart("Roofline", caption, _svg("roofline", draw, (5.2, 3.6)))


def _progress(entries: Sequence[Entry]) -> Chart | None:
    by_problem: dict[str, list[tuple[str, float, float | None]]] = {}
    for entry in entries:
        best, worst = entry.best, entry.worst
        seconds = sum(_sane(record.total_s) or 0.0 for record in entry.records)
        found = (worst.created_at, seconds, None if best is None else _sane(best[0]))
        by_problem.setdefault(entry.problem, []).append(found)
    lines = {name: sorted(found, key=lambda one: one[0]) for name, found in by_problem.items() if len(found) > 2}
    lines = {name: found for name, found in lines.items() if any(ratio for _, _, ratio in found)}
    if not lines:
        return None
    shown = sorted(lines, key=lambda name: -len(lines[name]))[:MOST_LINES]

    def draw(axes: Axes) -> None:
        for place, name in enumerate(shown):
            seconds, best, xs, ys = 0.0, 0.0, [], []
            for _, spent, ratio in lines[name]:
                seconds += spent
                best = max(best, ratio or 0.0)
                if best:
                    xs.append(seconds)
                    ys.append(best)
            label = shortened(one_line(name), _MOST_NAME)
            axes.step(xs, ys, where="post", color=_SERIES[place], marker=_MARKERS[place], markersize=3, label=label)
        axes.set_yscale("log")
        _plain_log_ticks(axes.yaxis)
        axes.set_xlabel("seconds of judging")
        axes.set_ylabel("best so far, times eager")
        axes.legend(frameon=False)

    caption = "The best speedup of a problem so far, in the order of judging; a mark for each candidate."
    return Chart("Best so far", caption, _svg("progress", draw, (5.2, 3.6)))


def _by_tokens(searches: Sequence[Search]) -> Chart | None:
    lines = [(search.name, found) for search in searches if (found := search.best_by_tokens)]
    return _by_cost("tokens", "tokens", lines)


def _by_device_s(searches: Sequence[Search]) -> Chart | None:
    lines = [(search.name, found) for search in searches if (found := search.best_by_device_s)]
    return _by_cost("device", "seconds of the device", lines)


def _by_cost(name: str, what: str, found: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> Chart | None:
    lines = found[:MOST_LINES]
    if not lines:
        return None

    def draw(axes: Axes) -> None:
        for place, (name, found) in enumerate(lines):
            label, colour = shortened(one_line(name), _MOST_NAME), _SERIES[place]
            axes.step(*zip(*found, strict=True), where="post", color=colour, marker=_MARKERS[place], label=label)
        axes.set_yscale("log")
        _plain_log_ticks(axes.yaxis)
        axes.set_xlabel(what)
        axes.set_ylabel("best so far, times eager at least")
        axes.legend(frameon=False)

    caption = f"The lower end of the best speedup's interval, after the {what} of each turn."
    return Chart(f"Best by {what}", caption, _svg(name, draw, (5.2, 3.6)))


def _fast(scores: Sequence[SampleScore]) -> Chart | None:
    curves = []
    for score in scores:
        if score.counting is Counting.PASSED:
            for direction, shares in score.fast.items():
                curves.append((f"{score.model or score.level or 'all'}, {_words(direction)}", shares))
    if not curves:
        return None
    shown = curves[:MOST_LINES]

    def draw(axes: Axes) -> None:
        for place, (name, shares) in enumerate(shown):
            points = sorted(shares)
            axes.plot(
                points,
                [100 * shares[p].best for p in points],
                color=_SERIES[place],
                marker=_MARKERS[place],
                markersize=4,
                label=shortened(one_line(name), _MOST_NAME),
            )
        axes.set_xlabel("p")
        axes.set_ylabel("fast_p (% of problems)")
        axes.set_ylim(0, 102)
        axes.legend(frameon=False)

    caption = "Share of the problems of which some sample is correct and more than p times as fast as eager."
    return Chart("fast_p", caption, _svg("fast", draw, (5.2, 3.6)))


def _clocks(entries: Sequence[Entry]) -> Chart | None:
    readings = []
    for entry in entries:
        for record in entry.records:
            during = record.device_state.get("during") or {}
            clock, heat = _sane(mapping(during.get("sm_mhz")).get("median")), _sane(during.get("max_temperature_c"))
            if clock is not None:
                readings.append((record.created_at, clock, heat))
    if len(readings) < 2:
        return None
    readings.sort(key=lambda one: one[0])

    def draw(axes: Axes) -> None:
        places = range(1, len(readings) + 1)
        axes.plot(
            places, [clock for _, clock, _ in readings], color=_SERIES[0], marker="o", markersize=3, label="clock"
        )
        axes.set_xlabel("timed record, in order")
        axes.set_ylabel("clock (MHz)")
        axes.set_ylim(0, None)
        heats = [(place, heat) for place, (_, _, heat) in zip(places, readings, strict=True) if heat is not None]
        if heats:
            other = axes.twinx()
            other.plot(*zip(*heats, strict=True), color=_SERIES[1], marker="s", markersize=3)
            other.set_ylabel("temperature (°C, squares)")
            other.set_ylim(0, None)

    caption = "The GPU's clock and temperature while candidates were timed. A clock that falls makes times longer."
    return Chart("Clock and temperature", caption, _svg("clocks", draw, (5.2, 3.6)))


def _sane(value: Any) -> float | None:
    """Returns a positive number that can be drawn; None for anything else."""
    found = number(value)
    return found if found is not None and _LEAST < found < _MOST else None


def _words(direction: str) -> str:
    return "forward" if direction == "forward" else "forward and backward"


def _name(entry: Entry) -> str:
    return shortened(one_line(entry.worst.solution), _MOST_NAME)


def _plain_log_ticks(axis: Any, subs: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Labels a logarithmic axis with numbers such as 0.5 and 2."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _svg(name: str, draw: Callable[[Axes], None], inches: tuple[float, float]) -> str:
    """Draws a figure. Its text stays text, and no name in it is read as mathematics."""
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.parse_math": False,
        "font.size": 9,
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": _FAINT,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "legend.labelcolor": _INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure.add_subplot())
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    # Several drawings on one page must not share names.
    text = re.sub(r'(<(?:g|path|clipPath|symbol|defs|svg|use)\b[^>]*?) id="', rf'\1 id="{name}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\1{name}-", text)
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%"', text, count=1)
