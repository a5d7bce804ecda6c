from __future__ import annotations

import pytest

from harness.rendering.stamp import parse_stamp, stamped

PARAMETERS = {"threads": 128, "mode": "fused", "fast": True, "factor": 0.5}
BODY = '"""A solution."""\nTHREADS = 128\n'


def test_round_trip() -> None:
    stamp = parse_stamp(stamped("demo", PARAMETERS, BODY))
    assert stamp is not None
    assert (stamp.template, stamp.parameters, stamp.intact) == ("demo", PARAMETERS, True)
    assert len(stamp.digest) == 64


def test_order_of_parameters_does_not_matter() -> None:
    assert stamped("demo", dict(reversed(PARAMETERS.items())), BODY) == stamped("demo", PARAMETERS, BODY)


def test_everything_enters_the_digest() -> None:
    texts = [
        stamped("demo", PARAMETERS, BODY),
        stamped("demo", PARAMETERS, BODY + "\n"),
        stamped("other", PARAMETERS, BODY),
        stamped("demo", {**PARAMETERS, "threads": 256}, BODY),
        stamped("demo", {**PARAMETERS, "threads": "128"}, BODY),
    ]
    digests = {stamp.digest for stamp in map(parse_stamp, texts) if stamp is not None}
    assert len(digests) == len(texts)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("THREADS = 128", "THREADS = 256"),
        ("A solution", "a solution"),
        ('"threads":128', '"threads":256'),
        ('"threads":128', '"threads": 128'),
        ("# template: demo", "# template: dema"),
        ("templates/demo", "templates/dema"),
    ],
)
def test_any_edit_shows(old: str, new: str) -> None:
    text = stamped("demo", PARAMETERS, BODY)
    assert old in text
    stamp = parse_stamp(text.replace(old, new, 1))
    assert stamp is not None
    assert not stamp.intact


@pytest.mark.parametrize(
    "text",
    [
        "",
        BODY,
        "\n" + stamped("demo", PARAMETERS, BODY),
        stamped("demo", PARAMETERS, BODY).replace("sha256:", "md5:"),
        stamped("demo", PARAMETERS, BODY).replace('{"factor"', "{factor"),
        stamped("demo", PARAMETERS, BODY).replace("0.5", "[0.5]"),
        stamped("demo", PARAMETERS, BODY).replace("0.5", "NaN"),
        stamped("demo", PARAMETERS, BODY).replace("0.5", "1" * 5000),
        stamped("demo", PARAMETERS, BODY).replace("0.5", "[" * 50_000),
    ],
)
def test_other_files_have_no_stamp(text: str) -> None:
    assert parse_stamp(text) is None
