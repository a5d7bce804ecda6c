"""Tests that a judge that dies or hangs costs only its own cases, also on one lane."""

from __future__ import annotations

from pathlib import Path

from benchmarks.kills import HONEST, PROBLEM
from tests.commands.test_lines import Stream, folder

__all__ = ["folder"]  # a fixture


def test_what_a_problem_does_to_its_judge_costs_no_other_candidate(own_home: Path, folder: Path) -> None:
    dead = "import os, signal\n    os.kill(os.getpid(), signal.SIGBUS)\n    return"
    (folder / "dead.py").write_text(PROBLEM.replace("return [torch", f"{dead} [torch"))
    endless = PROBLEM.replace("return torch.tanh(x)", "while True:\n            x = x + 1")
    (folder / "endless.py").write_text(f"{endless}\nTIMEOUT_S = 0.2\n")
    stuck = "import re\n    re.match('(a|a)*$', 64 * 'a' + 'b')  # keeps the interpreter's lock for years\n    return"
    (folder / "stuck.py").write_text(PROBLEM.replace("return [torch", f"{stuck} [torch") + "\nTIMEOUT_S = 0.2\n")
    stream = Stream(own_home, folder)
    stream.write({"source": HONEST, "problem": "dead.py", "tag": "dead"})
    stream.write(*({"source": f"{HONEST}# {tag}\n", "problem": "endless.py", "tag": tag} for tag in ("slow", "also")))
    stream.write(*({"source": f"{HONEST}# {tag}\n", "problem": "stuck.py", "tag": tag} for tag in ("stuck", "held")))
    stream.write({"source": HONEST, "problem": "problem.py", "tag": "good"})
    code, rows, err = stream.end()
    assert code == 2
    told = {row["tag"]: (row["status"], row.get("message") or row.get("error")) for row in rows}
    assert [row["tag"] for row in rows] == ["dead", "slow", "also", "stuck", "held", "good"]
    assert told["dead"] == (
        "HARNESS_ERROR",
        "the judge's process ended 3 times while it judged this candidate: signal SIGBUS",
    )
    assert told["slow"] == told["also"]
    assert told["slow"][0] is None
    assert "endless.py: judging case 'small' took longer than 2 s" in told["slow"][1]
    assert told["stuck"] == told["held"]
    assert told["stuck"][0] is None
    assert "stuck.py: judging case 'small' took longer than 2 s" in told["stuck"][1]
    assert told["good"][0] == "PASSED"
    assert "Traceback" not in err
