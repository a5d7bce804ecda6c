"""A taskset for verifiers: each problem of the server is a task, and the answer's reward is its verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import verifiers.v1 as vf
from pydantic import Field

from harness.adapters import client, scores

_PROMPT = (
    "Write a CUDA kernel for this PyTorch problem. Define ModelNew with the same constructor, parameters and forward, "
    "build the CUDA with torch.utils.cpp_extension.load_inline, and let gradients flow. Answer with one fenced block "
    "of Python.\n\n```python\n{source}\n```"
)


class KernelData(vf.TaskData):
    """A task: its ``prompt``, and the ``problem`` that its answer solves."""

    problem: str


class KernelTaskConfig(vf.TaskConfig):
    """The settings of judging: ``url``, ``cases`` and ``deadline_s``."""

    url: str | None = None
    cases: tuple[str, ...] = ()
    deadline_s: float = 3600.0


class KernelTask(vf.Task[KernelData, vf.State, KernelTaskConfig]):
    """A task that the harness scores."""

    @vf.reward
    async def kernel_reward(self, trace: vf.Trace) -> float:
        """Returns the reward of the last reply.

        Raises:
            vf.TaskError: The sample is masked; verifiers counts it as an error and not as a score.
        """
        config, problem = self.config, self.data.problem
        (score,) = await asyncio.to_thread(
            scores,
            client(config.url),
            [problem],
            [trace.last_reply],
            deadline_s=config.deadline_s,
            cases=[*config.cases],
        )
        if score is None:
            raise vf.TaskError("masked: the device or the harness may be at fault, or there was no time")
        return score


class KernelTasksetConfig(vf.TasksetConfig):
    """The problems: ``problems`` by name, with the text of each; and the settings of their tasks."""

    problems: dict[str, str] = Field(default_factory=dict)
    task: KernelTaskConfig = KernelTaskConfig()


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """One task for each problem."""

    def load(self) -> Iterable[KernelTask]:
        """Yields the tasks."""
        for name, source in self.config.problems.items():
            yield KernelTask(
                KernelData(name=name, problem=name, prompt=_PROMPT.format(source=source)), self.config.task
            )


__all__ = ["KernelTaskset"]
