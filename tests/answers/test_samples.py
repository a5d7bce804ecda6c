"""Tests reading many answers at once, and finding their problems."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.answers.problem_set import ProblemSet
from harness.answers.reading import RawAnswer
from harness.answers.samples import MOST_LINE_BYTES, Sample, read_samples
from harness.errors import AnswerError, UsageError
from harness.system.files import MAX_SOURCE_BYTES

CODE = "class ModelNew: pass\n"
PROBLEM = "class Model: pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"


def write(folder: Path, *names: str, text: str = CODE) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def key(sample: Sample) -> tuple[str, int | None, str, int | None]:
    return sample.problem, sample.level, sample.model, sample.number


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("level_1_problem_19_sample_2_kernel.py", ("19", 1, "run", 2)),
        ("a/b/level_1_problem_19_sample_2_kernel.py", ("19", 1, "a/b", 2)),
        ("level_3_problem_4_sample_0.txt", ("4", 3, "run", 0)),
        ("level1/19_ReLU_sample_2.txt", ("19_ReLU", 1, "run", 2)),
        ("level1/19_ReLU/sample_2.md", ("19_ReLU", 1, "run", 2)),
        ("model/Level_2/19/Sample-7.txt", ("19", 2, "model", 7)),
        ("group_norm.txt", ("group_norm", None, "run", None)),
        ("model/group_norm.sample.3.md", ("group_norm", None, "model", 3)),
        ("sample_3.txt", ("run", None, "", 3)),
        ("m/19_ReLU_sample_20261125093000.txt", ("19_ReLU", None, "m", 20261125093000)),
    ],
)
def test_a_path_names_a_sample(tmp_path: Path, name: str, expected: tuple[str, int | None, str, int | None]) -> None:
    write(tmp_path / "run", name)
    (sample,) = read_samples(tmp_path / "run")
    assert key(sample) == expected
    assert isinstance(sample.answer, RawAnswer)


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ("my_model/level1", "19_ReLU_sample_2.txt", ("19_ReLU", 1, "my_model", 2)),
        ("my_model/19_ReLU", "sample_2.txt", ("19_ReLU", None, "", 2)),
        ("my_model", "level1/19_ReLU.py", ("19_ReLU", 1, "my_model", None)),
    ],
)
def test_the_folder_s_own_name_counts_where_no_folder_inside_is_the_model(
    tmp_path: Path, given: str, name: str, expected: tuple[str, int | None, str, int | None]
) -> None:
    write(tmp_path / given, name)
    (sample,) = read_samples(tmp_path / given)
    assert key(sample) == expected


def test_samples_come_in_the_order_of_numbers_and_others_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, *(f"level_1_problem_{n}_sample_0_kernel.py" for n in (10, 2, 1)), "eval_results.json", "a.png")
    assert [one.problem for one in read_samples(tmp_path)] == ["1", "2", "10"]


def test_an_unreadable_answer_is_a_sample_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path, "1.txt", text="")
    (tmp_path / "2.txt").write_bytes(b"\xff\xfe\x00")
    answers = [one.answer for one in read_samples(tmp_path)]
    assert all(isinstance(one, AnswerError) for one in answers)
    assert "empty" in str(answers[0])


def test_what_is_no_readable_file_is_a_failed_sample(tmp_path: Path) -> None:
    (tmp_path / "19_ReLU_sample_1.py").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "19_ReLU_sample_2.py")
    (tmp_path / "folder.py").mkdir()
    found = list(read_samples(tmp_path))
    assert [one.number for one in found] == [1, 2]
    assert all(isinstance(one.answer, AnswerError) for one in found)


def test_lines_name_samples(tmp_path: Path) -> None:
    lines = [
        {"problem": "19_ReLU", "completion": CODE, "temperature": 0.7},
        {"problem": "19_ReLU", "completion": CODE},
        {"problem": 19, "level": 1, "model": "m", "sample": 4, "completion": CODE},
        {"problem": "x", "completion": ""},
        {"problem": "x", "completion": None},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    found = list(read_samples(path))
    assert [key(one) for one in found] == [
        ("19_ReLU", None, "", None),
        ("19_ReLU", None, "", None),
        ("19", 1, "m", 4),
        ("x", None, "", None),
        ("x", None, "", None),
    ]
    assert isinstance(found[3].answer, AnswerError)
    assert "the model gave no answer" in str(found[4].answer)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("[]", "'completion'"),
        ('{"problem": "a"}', "'completion'"),
        ('{"completion": "a"}', "'problem'"),
        ('{"problem": true, "completion": "a"}', "'problem'"),
        ('{"problem": "a", "completion": "b", "sample": -1}', "'sample'"),
        ('{"problem": "a", "completion": "b", "sample": "0"}', "'sample'"),
        ('{"problem": "a", "completion": "b", "level": 1.5}', "'level'"),
        ('{"problem": "a", "completion": "b", "model": 3}', "'model'"),
        ('{"problem": "a", "completion": "b", "model": "/m"}', "'model'"),
        ('{"problem": "a", "completion": "b", "model": "m/../../n"}', "'model'"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"problem": "a", "completion": "b"}\n' + line + "\n")
    with pytest.raises(UsageError, match=r"answers\.jsonl:2") as raised:
        list(read_samples(path))
    assert words in str(raised.value)


def test_hidden_files_are_no_answers_and_no_problems(tmp_path: Path) -> None:
    around = tmp_path / ".runs"  # what is above the folder does not count
    write(around, "m/.git/1_A.txt", "m/.ipynb_checkpoints/1_A-checkpoint.py", "m/.1_A.py", "m/1_A.py", text=CODE)
    assert [one.where for one in read_samples(around)] == [str(around / "m" / "1_A.py")]
    write(around, "p/.ipynb_checkpoints/1_A-checkpoint.py", "p/.venv/lib/1_B.py", "p/1_A.py", text=PROBLEM)
    assert ProblemSet(around / "p").find("1", None).path == around / "p" / "1_A.py"
    (around / "m" / "1_A.py").unlink()
    with pytest.raises(UsageError, match="holds no answers"):
        read_samples(around / "m")


def test_a_line_beyond_the_limit_is_told_from_a_long_answer(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    long = '{"problem": "a", "completion": "' + "x" * (MAX_SOURCE_BYTES + 1) + '"}\n'
    path.write_text(long + "{" + " " * MOST_LINE_BYTES + "}\n")
    samples = read_samples(path)
    assert "is the limit" in str(next(samples).answer)
    with pytest.raises(UsageError, match=r"answers\.jsonl:2: the line has 33,554,432 bytes or more"):
        next(samples)


def test_what_holds_no_answers_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no answers"):
        list(read_samples(tmp_path))
    with pytest.raises(UsageError, match="no such file or folder"):
        list(read_samples(tmp_path / "nothing"))
    (tmp_path / "answers.json").touch()
    with pytest.raises(UsageError, match=r"a folder of answers, or a file"):
        list(read_samples(tmp_path / "answers.json"))


@pytest.mark.parametrize(
    ("name", "level", "found"),
    [
        ("19_ReLU", None, "level1/19_ReLU.py"),
        ("19_relu.py", None, "level1/19_ReLU.py"),
        ("level1/19_ReLU.py", None, "level1/19_ReLU.py"),
        ("level1/same.py", None, "level1/same.py"),
        ("19", 1, "level1/19_ReLU.py"),
        ("019", None, "level1/19_ReLU.py"),
        ("1", 1, "level1/1_A.py"),
        ("1", 2, "level2/1_B.py"),
        ("same", 2, "level2/same.py"),
        ("7", 3, "level_3/7_C.py"),
        ("task_7", 3, "level_3/7_C.py"),
        ("problem_019", 1, "level1/19_ReLU.py"),
        ("task_8", None, "level_3/task_8.py"),
    ],
)
def test_a_problem_is_found_by_name_and_by_number(tmp_path: Path, name: str, level: int | None, found: str) -> None:
    write(tmp_path, "level1/19_ReLU.py", "level1/1_A.py", "level2/1_B.py", "level1/same.py", text=PROBLEM)
    write(tmp_path, "level2/same.py", "level_3/7_C.py", "level_3/task_8.py", "level_3/8_D.py", text=PROBLEM)
    assert ProblemSet(tmp_path).find(name, level).path == tmp_path / found


@pytest.mark.parametrize(
    ("name", "level", "words"),
    [
        ("1", None, "may be"),
        ("2", None, "no problem '2'"),
        ("²", None, "no problem"),
        ("task_²", None, "no problem"),
        ("task_2", 1, "no problem 'task_2' of level 1"),
        ("mytask_1", 1, "no problem"),
        ("1" * 5000, None, "no problem"),
        ("19_ReLU", 2, "of level 2"),
        ("19_RelU_", None, "mean"),
    ],
)
def test_an_answer_without_a_problem_is_told(tmp_path: Path, name: str, level: int | None, words: str) -> None:
    write(tmp_path, "level1/19_ReLU.py", "level1/1_A.py", "level2/1_B.py", text=PROBLEM)
    with pytest.raises(UsageError, match=words):
        ProblemSet(tmp_path).find(name, level)


def test_a_folder_without_problems_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no problem"):
        ProblemSet(tmp_path)


def test_one_problem_is_that_of_all_answers(tmp_path: Path) -> None:
    write(tmp_path, "19_ReLU.py", text=PROBLEM)
    assert ProblemSet(tmp_path / "19_ReLU.py").find("anything", 7).name == "19_ReLU"
