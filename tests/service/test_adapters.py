"""Tests the reward functions for trainers against a server, and in the trainers that are installed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills import HONEST, PROBLEM, WRONG
from harness.adapters import scores, text_of
from harness.adapters.trl import KernelReward
from harness.adapters.verl import MaskedReward, compute_score
from harness.errors import UsageError
from harness.server.client import Client
from tests.service.servers import Running, serving
from tests.service.test_async_evaluator import SPINNING, fenced

NEEDS = "it brings over 20 packages: pip install {0} to run this"


@pytest.fixture(scope="module")
def server(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("trained")
    (root / "problems").mkdir()
    (root / "problems" / "tanh.py").write_text(PROBLEM)
    with serving(home, "--root", root, "--timeout", "600") as running:
        yield running


def message(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "write"}, {"role": "assistant", "content": [{"type": "text", "text": text}]}]


def test_every_completion_has_a_reward_or_none(server: Running) -> None:
    reward = KernelReward(server.url, cases=["small"])
    completions = [fenced(HONEST), message(fenced(WRONG)), "", message("no code"), [], "x" * ((1 << 20) + 1), "\udcff"]
    found = reward(completions=completions, problem=["tanh"] * len(completions), prompts=[], trainer_state=None)
    assert found == [-1, -0.5, -1, -1, -1, -1, -1]
    with pytest.raises(UsageError, match="needs a column 'problem'"):
        reward(completions=completions)
    with pytest.raises(UsageError, match="no problem 'cosh'"):
        reward(completions=[HONEST], problem=["cosh"])


def test_no_verdict_in_time_is_masked_and_never_scored(server: Running) -> None:
    client = Client(server.url)
    late = scores(client, ["tanh"] * 2, [SPINNING, "no code"], cases=["small"], deadline_s=0.5)
    assert late[0] is None
    assert scores(Client("http://127.0.0.1:9"), ["tanh"], [HONEST], cases=(), deadline_s=0.1) == [None]
    with pytest.raises(MaskedReward, match="no fault of its own"):
        asyncio.run(compute_score("", SPINNING, "tanh", {}, url=server.url, cases=["small"], deadline_s=0.5))
    found = asyncio.run(
        compute_score("", SPINNING, "tanh", url=server.url, cases=["small"], deadline_s=0.5, masked_score=0.0)
    )
    assert found == {"score": 0, "masked": 1}
    for one in server.ask("POST", "/evaluations", {"problem": "tanh", "answer": SPINNING, "cases": ["small"]})[1:2]:
        server.ask("POST", f"/evaluations/{one['id']}/cancel")


@pytest.mark.parametrize("completion", [None, [], [3], [{"role": "assistant"}], [{"content": 3}], [{"role": "user"}]])
def test_a_completion_without_text_is_an_empty_answer(completion: Any) -> None:
    assert text_of(completion) == ""


def test_trl_trains_on_the_reward(server: Running, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason=NEEDS.format("trl"))
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    words = ["<pad>", "<eos>", "write", "a", "kernel", "ModelNew"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=6, num_key_value_heads=2, pad_token_id=0, eos_token_id=1, **sizes)
    trainer = trl.GRPOTrainer(
        model=Qwen2ForCausalLM(config),
        reward_funcs=[KernelReward(server.url, cases=["small"])],
        args=trl.GRPOConfig(
            output_dir=str(tmp_path), max_steps=1, per_device_train_batch_size=2, num_generations=2,
            max_completion_length=8, use_cpu=True, bf16=False, report_to=[], logging_steps=1, save_strategy="no",
        ),
        train_dataset=Dataset.from_dict({"prompt": ["write a kernel"] * 2, "problem": ["tanh"] * 2}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"),
    )  # fmt: skip
    trainer.train()
    assert trainer.state.log_history[0]["rewards/kernel_reward/mean"] == -1


def test_verl_finds_the_function_by_its_name(server: Running) -> None:
    reward = pytest.importorskip("verl.trainer.ppo.reward", reason=NEEDS.format("verl"))
    from omegaconf import OmegaConf

    function = {
        "path": "pkg://harness.adapters.verl",
        "name": "compute_score",
        "reward_kwargs": {"url": server.url, "cases": ["small"]},
    }
    score = reward.get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": function}}))
    asked = {"data_source": "kernels", "solution_str": fenced(WRONG), "ground_truth": "tanh", "extra_info": {}}
    assert asyncio.run(score(**asked)) == {"score": -0.5, "masked": 0}


def test_verifiers_scores_a_trace_and_masks_by_an_error(server: Running) -> None:
    vf = pytest.importorskip("verifiers.v1", reason=NEEDS.format("verifiers"))
    from harness.adapters.verifiers import KernelTaskset, KernelTasksetConfig

    def traced(text: str, deadline_s: float = 600.0) -> Any:
        config = {"url": server.url, "cases": ["small"], "deadline_s": deadline_s}
        (task,) = KernelTaskset(KernelTasksetConfig(problems={"tanh": PROBLEM}, task=config))
        assert PROBLEM in task.data.prompt_text
        recorded = vf.TraceTask(type="KernelTask", data=task.data)
        agent = vf.AgentInfo(config=vf.AgentConfig())
        trace = vf.Trace(task=recorded, agent=agent, root_reply=text)
        asyncio.run(task.score(trace))
        return trace

    assert traced(fenced(WRONG)).reward == -0.5
    assert traced("I cannot help with that.").reward == -1
    with pytest.raises(vf.TaskError, match="masked"):
        traced(SPINNING, 0.5)
