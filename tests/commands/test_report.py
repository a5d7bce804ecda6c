"""Tests ``report``: what the file holds, and what a browser shows of it."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness.generation.attempts import Attempt, Gate, Kind, Outcome, Tokens
from harness.generation.transcript import Transcript
from harness.records.kernels import KernelUse
from harness.records.record import EvaluationRecord, Finding, PrecisionClass, Status, TensorReport
from harness.records.store import Store
from harness.report.html.candidate import coloured

Harness = Callable[..., Any]
TIMES = {"median_ms": 2.0, "low_ms": 1.9, "high_ms": 2.2, "samples_ms": [1.9, 2.0, 2.2]}
SLOWER = {"median_ms": 4.0, "low_ms": 3.9, "high_ms": 4.1, "samples_ms": [3.9, 4.0, 4.1]}
CERTIFICATE = {"calls": 4, "candidate_ms": 2.0, "at_least_ms": 1.9, "eager_ms": 4.0, "resolution_ms": 0.01}
PASSED = EvaluationRecord(
    problem="norm",
    solution="norm/fast",
    case="full",
    device="cuda:0",
    status=Status.PASSED,
    message="",
    seed="ab",
    digest="d1",
    problem_digest="p",
    precision_class=PrecisionClass.FP32,
    outputs=(TensorReport("output", (2, 4), "float32", True, share=0.25),),
    trials=5,
    forward_ms=2.0,
    speedup={"forward": 2.0},
    speedup_interval={"forward": (1.9, 2.1)},
    certified={"forward": CERTIFICATE},
    samples={"forward": {"candidate": TIMES, "eager": SLOWER}},
    floor={"forward": {"share": (0.8, 0.79, 0.81), "intensity": 2.5}},
    device_state={"during": {"sm_mhz": {"median": 1980}, "max_temperature_c": 44}, "flags": []},
    kernels={"forward": (KernelUse("mine<4>", 1, own=True, device_ms=2.0),)},
    own_share=1.0,
    total_s=3.0,
    record="000000000001",
    run="run-00000001",
    created_at="2026-01-01T00:00:00+00:00",
)
GRID = ((0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.001, 1.0))
WRONG = replace(
    PASSED,
    solution="norm/wrong",
    status=Status.WRONG_OUTPUT,
    message="output: relative L2 error 1",
    outputs=(TensorReport("output", (2, 4), "float32", False, share=9.5, wrong=3, wrong_grid=GRID),),
    forward_ms=None,
    speedup=None,
    speedup_interval={},
    certified={},
    samples={},
    digest="d2",
    record="000000000002",
)
SCRIPT = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
CLOSING = "</td></table></pre></script></svg>{{ 7 * 7 }}$\\frac{$\x1b[31m\udcff"
HOSTILE = replace(
    WRONG,
    problem=f"p{SCRIPT}",
    solution=f"norm/{SCRIPT}{CLOSING}",
    case=f"c{CLOSING}",
    status=Status.CHEATED,
    rule="global-state",
    message=f'{SCRIPT}{CLOSING}" onmouseover="window.hacked = 1',
    findings=(Finding("kind", kernel=SCRIPT, line=1, accesses=(), remedy=SCRIPT, message=CLOSING),),
    environment={"gpu": SCRIPT},
    log=SCRIPT,
    digest="d3",
    record="000000000003",
)
SOURCES = {
    "d0": "x = 1\n",
    "d1": 'import torch\nsource = """\n__global__ void mine() { return; } // slow\n"""\n',
    "d2": "x = 2\n",
    "d3": f"# {SCRIPT}{CLOSING}\n",
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class _Links(HTMLParser):
    """Collects what a document would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        assert tag not in ("iframe", "object", "embed", "img", "link"), tag
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        assert not [name for name in names if name.startswith("on")]


def fill(folder: Path) -> Path:
    before = replace(PASSED, digest="d0", record="00000000000f", created_at="2025-12-31T00:00:00+00:00")
    with Store(folder, writable=True) as store:
        for record in (before, PASSED, WRONG, HOSTILE):
            store.add(record, SOURCES[record.digest])
    return folder


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return fill(tmp_path / "home")


@pytest.fixture(scope="module")
def report(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    ran = harness("report", "-o", path, "--home", fill(tmp_path_factory.mktemp("home")))
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert f"wrote {path}: 4 records" in ran.err
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("needs a browser: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The report in Chromium."""
    with opened(browser, report) as page:
        yield page


@contextlib.contextmanager
def opened(browser: Any, report: Path) -> Iterator[Any]:
    """A report in Chromium; at the end nothing of it has run that is not ours, and nothing failed."""
    troubles: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: request.url.startswith("file:") or troubles.append(request.url))
    page.goto(report.as_uri())
    yield page
    assert page.evaluate("window.hacked") is None
    page.close()
    assert troubles == []


def test_the_file_loads_nothing(report: Path) -> None:
    links = _Links()
    text = report.read_text()
    links.feed(text)
    assert links.found
    assert all(link.startswith("#") for link in links.found)
    assert len(text) < 500_000


#: Figures and texts that a results file may hold, though no harness writes them.
ODD: dict[str, dict[str, Any]] = {
    "infinite share of light": {"floor": {"forward": {"share": [float("inf"), 1, 1], "intensity": 2.5}}},
    "huge share of light": {"floor": {"forward": {"share": [1.7e308, 1, 1], "intensity": 2.5}}},
    "speedups of no measurement": {"speedup": {"forward": 1e300}, "speedup_interval": {"forward": [-1, 1e308]}},
    "hours beyond counting": {"total_s": 1e308},
    "negative share of a budget": {"outputs": (replace(PASSED.outputs[0], share=-3.0),)},
    "endless share of a budget": {"outputs": (replace(PASSED.outputs[0], share=float("-inf")),)},
    "a grid of another form": {"outputs": (replace(PASSED.outputs[0], wrong_grid=((0.5,) * 500,) * 400),)},
    "an endless log": {"log": "".join(map(chr, range(32, 127))) * 60_000},
    "an endless message": {"message": "x " * 3_000_000},
    "no times at all": {"samples": {"forward": {"candidate": {**TIMES, "samples_ms": []}}}},
    "a file that is none": {"solution_path": "/proc/kmsg"},
    "an endless file": {"solution_path": "/dev/zero"},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_figures_and_endless_texts_make_a_report(harness: Harness, tmp_path: Path, name: str) -> None:
    odd = [replace(PASSED, solution=f"norm/{number}", **ODD[name]) for number in range(4)]
    results = tmp_path / "odd.jsonl"
    results.write_text("".join(f"{one.to_json()}\n" for one in odd))
    ran = harness("report", results, "-o", tmp_path / "r.html", "--home", tmp_path / "home")
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert (tmp_path / "r.html").stat().st_size < 3_000_000


@pytest.mark.parametrize(
    "text",
    [
        'x = """\n__global__ void f();\nint ' + "//\\\n" * 40 + '\n"""',
        'x = """\n__global__ int ' + " " * 50_000 + '"""',
        '"""' * 15_000,
        "'" * 50_000,
        'x = """\n__global__ ' + "/*" * 20_000,
        '"\\' * 20_000,
    ],
)
def test_no_source_holds_it_up(text: str) -> None:
    """Also its text is shown whole."""
    lines = [html.unescape(re.sub("</?b( class=.)?>", "", line)) for line in coloured(text)]
    assert "\n".join(lines) == text


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_results_that_are_no_file_are_refused(harness: Harness, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "record.json"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    ran = harness("evaluate", "--replay", path, HARNESS_HOME=str(tmp_path / "home"))
    assert (ran.code, "not a regular file" in ran.err, "Traceback" in ran.err) == (2, True, False), ran.err


def test_without_matplotlib_the_command_says_how_to_get_it(harness: Harness, filled: Path, tmp_path: Path) -> None:
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise ModuleNotFoundError('none', name='matplotlib')\n")
    ran = harness("report", "-o", tmp_path / "r.html", "--home", filled, PYTHONPATH=str(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert "pip install" in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["run-00000009"], "no run run-00000009"),
        (["ffff"], "no record"),
        (["--problem", "none"], "no records of none"),
        (["-o", "{folder}/none/r.html"], "cannot write"),
        (["{folder}/home/store.db"], "store.db"),
        (["{folder}"], "cannot read {folder}/transcript.jsonl"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(
    harness: Harness, filled: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    given = [one.format(folder=tmp_path) for one in options]
    ran = harness("report", "-o", tmp_path / "r.html", *given, "--home", filled)
    told = words.format(folder=tmp_path) in ran.err
    assert (ran.code, ran.out, told, "Traceback" in ran.err) == (2, "", True, False), ran.err
    assert not (tmp_path / "r.html").exists()


def test_an_overview_names_scores_and_what_they_are_over(page: Any) -> None:
    assert page.locator("h1").inner_text() == "1 of 3 candidates passed"
    first = page.locator("article.card").first.inner_text()
    assert "1 of 3 correct" in first
    assert re.search(r"geometric mean\s+of speedups over eager of the timed correct samples \(1 forward\)", first)
    titles = page.locator("figure h3").all_inner_texts()
    assert titles == ["Speedups", "Error and speed", "Roofline", "Clock and temperature", "fast_p"]
    assert "norm/fast" in page.locator("figure svg").first.text_content()


def test_rows_are_sorted_and_filtered(page: Any) -> None:
    def shown() -> list[str]:
        return [row.inner_text().split("\t")[0] for row in page.locator("#rows tbody tr:visible").all()]

    assert len(shown()) == 3
    page.get_by_role("button", name="error").click()
    assert shown()[0] == "norm/fast"
    page.get_by_role("button", name="error").click()
    assert shown()[-1] == "norm/fast"
    page.get_by_label("Status").select_option("WRONG_OUTPUT")
    assert shown() == ["norm/wrong"]
    assert page.locator("#shown").inner_text() == "1 of 3"
    page.get_by_role("button", name="Show all").click()
    page.get_by_label("Search").fill("RELATIVE wrong")
    page.locator("#shown").filter(has_text=re.compile("^1 of 3$")).wait_for()
    assert shown() == ["norm/wrong"]


def test_a_candidate_has_a_page(page: Any) -> None:
    page.get_by_role("link", name="norm/wrong").click()
    one = page.locator("#page")
    one.locator("h2").wait_for()
    assert "output: relative L2 error 1" in one.locator("pre.message").inner_text()
    cells = one.locator("figure.grid rect")
    assert cells.count() == 8
    assert one.locator("figure.grid rect.wrong").count() == 4
    page.get_by_role("link", name="norm/fast").click()
    page.locator("#page h2").filter(has_text="norm/fast").wait_for()
    text = one.inner_text()
    assert "mine<4>" in text
    assert "2 ms [1.9, 2.2]" in text
    assert "-x = 1" in one.locator("pre.code .removed").all_inner_texts()
    assert "__global__" in one.locator("pre.code").last.inner_text()
    assert one.locator("pre.code b.c").inner_text().startswith("// slow")
    assert "--seed ab" in one.locator("details pre").first.text_content()


def test_hostile_texts_are_shown_and_do_nothing(page: Any) -> None:
    page.locator("#rows tbody a").filter(has_text="script").click()
    one = page.locator("#page")
    one.locator("h2").wait_for()
    text = one.inner_text()
    assert "<script>window.hacked = 1</script>" in text
    assert "{{ 7 * 7 }}" in text
    assert "\\x1b[31m" in text
    assert page.locator("img, iframe").count() == 0


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "light"), (1280, "dark")])
def test_it_fits_the_window(page: Any, width: int, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    page.get_by_role("link", name="norm/fast").click()
    page.locator("#page h2").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    is_dark = sum(map(int, re.findall(r"\d+", paper)[:3])) < 300
    assert is_dark == (scheme == "dark")
    assert ink != paper


GATE = Gate(True, runner_up=1, leads={"full": (1.5, 1.4, 1.6)}, device_s=2.5)


def test_a_search_is_shown_turn_by_turn(browser: Any, harness: Harness, filled: Path, tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / f"run{SCRIPT[:8]}", {"problem": "norm", "strategy": "tree"})
    for number, records, gate in ((1, (WRONG,), None), (2, (PASSED,), GATE), (3, (), None)):
        asked = Attempt(number, Kind.REPAIR, number - 1 or None, SCRIPT, f"prompt {number} {SCRIPT}{CLOSING}")
        transcript.asked(asked)
        answered = replace(asked, tokens=Tokens(1000, 500))
        transcript.answered(answered, f"answer {number} {SCRIPT}{CLOSING}")
        if records:
            settled = replace(answered, outcome=Outcome.JUDGED, source="x", records=records)
            transcript.settled(settled, 1.0)
            if gate is not None:
                transcript.gated(replace(settled, gate=gate), 2.0)
    # The run is at work, and what is not written to its end is no event yet.
    with transcript.path.open("a") as file:
        file.write('{"event": "asked"')
    ran = harness("report", transcript.path.parent, "-o", tmp_path / "r.html", "--home", filled)
    transcript.close()
    assert (ran.code, ran.out) == (0, ""), ran.err
    with opened(browser, tmp_path / "r.html") as page:
        told = page.inner_text("main")
        assert "1 of 3 attempts passed, the first of them attempt 2; 4,500 tokens; 4,500 for each that" in told
        assert "that passed; 2.5 s of the device." in told
        rows = [row.inner_text().split("\t") for row in page.locator(".turns tbody tr").all()]
        assert [row[0] for row in rows] == ["1", "2", "3"]
        assert [row[2] for row in rows] == ["", "1", "2"]
        assert [row[-1].strip("■✓ ") for row in rows] == [
            "WRONG_OUTPUT",
            f"PASSED, at least 1.90x; passed the gate: {GATE.words}",
            "",
        ]
        assert {"Best by tokens", "Best by seconds of the device"} <= set(page.locator("figure h3").all_inner_texts())
        page.locator(".turns").get_by_role("link", name="2").click()
        page.locator("#page h2").filter(has_text="Attempt 2: repair").wait_for()
        answer, prompt = page.locator("#page pre").all_inner_texts()
        assert answer.startswith(f"answer 2 {SCRIPT}")
        assert prompt.startswith(f"prompt 2 {SCRIPT}")
        assert page.locator("#rows tbody a").all_inner_texts() == ["attempt 1", "attempt 2"]


ASKED = {"event": "asked", "number": 1, "kind": "write", "parent": None, "proposer": "m", "prompt": "p"}
TOKENS = {"sent": 1, "received": 1, "estimated": False}


@pytest.mark.parametrize(
    "event",
    [
        {**ASKED, "parent": "x"},
        {**ASKED, "parent": 1},
        {"event": "answered", "number": 1, "text": "t", "note": "", "tokens": {**TOKENS, "sent": "many"}},
        {"event": "answered", "number": 1, "text": "t", "note": "", "tokens": {**TOKENS, "sent": 10**400}},
        {"event": "gated", "number": 1, "gate": {"passed": [], "message": "", "records": []}, "elapsed_s": 1},
    ],
    ids=str,
)
def test_a_search_of_somebody_else_may_hold_anything(
    harness: Harness, filled: Path, tmp_path: Path, event: dict[str, Any]
) -> None:
    begun = {"event": "begun", "layout": 1, "facts": {"problem": [SCRIPT]}}
    lines = [begun, *([ASKED] if event["event"] != "asked" else []), event]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "transcript.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ran = harness("report", tmp_path / "run", "-o", tmp_path / "r.html", "--home", filled)
    assert (ran.code, "is not an event of a run" in ran.err, "Traceback" in ran.err) == (2, True, False), ran.err


def test_a_search_that_has_only_begun_makes_a_report(harness: Harness, filled: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "transcript.jsonl").touch()
    ran = harness("report", tmp_path / "run", "-o", tmp_path / "r.html", "--home", filled)
    assert (ran.code, "0 records" in ran.err) == (0, True), ran.err
