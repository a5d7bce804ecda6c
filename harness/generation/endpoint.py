"""Asks language models at an OpenAI-compatible endpoint, through the ``openai`` package.

Address and key come from ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY``. No record or transcript holds
either of them.
"""

from __future__ import annotations

import email.utils
import os
import random
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from harness.errors import UsageError
from harness.generation.attempts import (
    LONGEST_WAIT_S,
    MAX_ANSWER_BYTES,
    Outcome,
    ProposerFailed,
    Reply,
    Tokens,
    Turn,
    estimated_tokens,
)
from harness.report.extras import imported
from harness.system.text import one_line, shortened

KEY_VARIABLE, ADDRESS_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"
#: The first pause before a retry, in seconds, which doubles; the longest; the longest that
#: ``Retry-After`` may ask for.
FIRST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_RETRY_AFTER_S = 1.0, 60.0, 600.0
_CONNECT_S = 30.0
_MAX_WORDS = 300


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings of the requests to a model.

    Attributes:
        temperature: The sampling temperature; None for the endpoint's default.
        max_tokens: The most tokens of an answer; None for the endpoint's default.
        timeout_s: Seconds that an answer may take as a whole.
        retries: Further tries after a rate limit, a server's error or a lost connection.
        first_pause_s: The pause before the first retry, in seconds.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    timeout_s: float = 600.0
    retries: int = 4
    first_pause_s: float = FIRST_PAUSE_S


class EndpointModel:
    """A model at the endpoint; a ``Proposer``.

    Args:
        model: The model's name, as the endpoint knows it.
        sampling: How to ask it.

    Raises:
        UsageError: The package ``openai`` or the key is missing, or the address is no URL.
    """

    def __init__(self, model: str, sampling: Sampling | None = None):
        if not model.strip():
            raise UsageError("--model is empty: give the model's name, as the endpoint knows it")
        self.name = model
        self._sampling = sampling or Sampling()
        self._timeout_s = min(self._sampling.timeout_s, LONGEST_WAIT_S)
        self._openai: Any = imported("openai", "--model")
        self._key = os.environ.get(KEY_VARIABLE, "")
        if not self._key and not os.environ.get(ADDRESS_VARIABLE):
            raise UsageError(
                f"--model: set {KEY_VARIABLE} to the key of OpenAI's endpoint, or {ADDRESS_VARIABLE} to the address "
                "of another one, such as http://localhost:8000/v1"
            )
        _check_address(os.environ.get(ADDRESS_VARIABLE))
        self._stopped = threading.Event()
        self._client = self._openai.OpenAI(api_key=self._key or "none", max_retries=0, timeout=self._timeout_s)

    def close(self) -> None:
        """Ends pauses between retries and closes the connections. The model answers nothing more."""
        self._stopped.set()
        self._client.close()

    def propose(self, turn: Turn) -> Reply:
        """Asks the model, and again after a failure that may pass.

        Raises:
            ProposerFailed: It did not answer.
        """
        deadline = time.monotonic() + self._timeout_s
        for tried in range(self._sampling.retries + 1):
            if self._stopped.is_set():
                raise ProposerFailed(Outcome.LOST, "the run has ended")
            try:
                return self._ask(turn.prompt, deadline)
            except _Passing as failure:
                pause = self._pause(tried, failure.retry_after_s)
                if tried == self._sampling.retries or pause > LONGEST_RETRY_AFTER_S or self._stopped.wait(pause):
                    raise ProposerFailed(failure.outcome, f"{failure} (tried {tried + 1} times)") from None
                deadline = time.monotonic() + self._timeout_s
        raise AssertionError("the last try returns or raises")

    def _pause(self, tried: int, retry_after_s: float | None) -> float:
        if retry_after_s is not None:
            return retry_after_s
        longest: float = min(self._sampling.first_pause_s * 2**tried, LONGEST_PAUSE_S)
        return longest * random.uniform(0.5, 1.0)  # so that several do not come back at once

    def _ask(self, prompt: str, deadline: float) -> Reply:
        """Asks once.

        Raises:
            ProposerFailed: It did not answer, and would not the next time.
            _Passing: It may answer the next time.
        """
        openai = self._openai
        try:
            return self._read(prompt, deadline)
        except openai.APITimeoutError:
            raise ProposerFailed(Outcome.TIMED_OUT, f"no answer in {self._timeout_s:g} s") from None
        except openai.RateLimitError as error:
            after = retry_after(error.response.headers.get("retry-after"))
            raise _Passing(Outcome.RATE_LIMITED, self._safe(error), after) from None
        except openai.APIStatusError as error:
            if error.status_code >= 500 or error.status_code in (408, 409):
                after = retry_after(error.response.headers.get("retry-after"))
                raise _Passing(Outcome.SERVER_ERROR, self._safe(error), after) from None
            raise ProposerFailed(Outcome.REFUSED, self._safe(error)) from None
        except openai.APIConnectionError as error:
            raise _Passing(Outcome.LOST, self._safe(error.__cause__ or error)) from None
        except (openai.OpenAIError, ValueError) as error:
            raise ProposerFailed(Outcome.MALFORMED, f"not an answer of the protocol: {self._safe(error)}") from None

    def _read(self, prompt: str, deadline: float) -> Reply:
        """Reads an answer as it comes, and stops where it is too long or too slow."""
        chosen = {"temperature": self._sampling.temperature, "max_completion_tokens": self._sampling.max_tokens}
        parts: list[str] = []
        size, tokens, finish = 0, None, ""
        with self._client.chat.completions.create(
            model=self.name,
            messages=[{"role": "user", "content": prompt}],
            stream=True,
            stream_options={"include_usage": True},
            timeout=self._openai.Timeout(self._timeout_s, connect=min(_CONNECT_S, self._timeout_s)),
            **{name: value for name, value in chosen.items() if value is not None},
        ) as stream:
            for chunk in stream:
                text, reason = _content(chunk)
                parts += [text] if text else []
                size += len(text.encode("utf-8", "replace"))
                finish = reason or finish
                tokens = _usage(chunk) or tokens
                if size > MAX_ANSWER_BYTES:
                    words = f"the answer has more than {MAX_ANSWER_BYTES:,} bytes, which is the limit"
                    raise ProposerFailed(Outcome.TOO_LONG, words, estimated_tokens(prompt, "".join(parts)))
                if time.monotonic() > deadline:
                    words = f"no whole answer in {self._timeout_s:g} s"
                    raise ProposerFailed(Outcome.TIMED_OUT, words, estimated_tokens(prompt, "".join(parts)))
        if not finish and not parts:
            raise ValueError("no event of a stream came; the endpoint must stream its answers")
        if not finish:
            raise _Passing(Outcome.LOST, "the answer ended in the middle")
        note = "The answer was cut off at the limit of its length." if finish == "length" else ""
        text = "".join(parts)
        return Reply(text, tokens or estimated_tokens(prompt, text), note)

    def _safe(self, error: BaseException) -> str:
        """Returns an error in one line, without the key and the address."""
        text = str(error)
        for secret in (self._key, os.environ.get(ADDRESS_VARIABLE, "")):
            if secret:
                text = text.replace(secret, "***")
        return shortened(one_line(text), _MAX_WORDS)


def _check_address(address: str | None) -> None:
    """Checks the address of the endpoint, which may hold a password, so that no message has it.

    Raises:
        UsageError: It is no address of a server.
    """
    if not address:
        return
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise UsageError(f"{ADDRESS_VARIABLE} must be an address such as http://localhost:8000/v1")


class _Passing(Exception):
    """A failure that may pass.

    Attributes:
        outcome: What it is if it does not.
        retry_after_s: The pause that the server asks for, in seconds; None if it does not.
    """

    def __init__(self, outcome: Outcome, message: str, retry_after_s: float | None = None):
        super().__init__(message)
        self.outcome = outcome
        self.retry_after_s = retry_after_s


def retry_after(header: str | None) -> float | None:
    """Returns the seconds that ``Retry-After`` asks for, as a number or a date; None for nonsense."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, seconds) if seconds == seconds else None


def _content(chunk: Any) -> tuple[str, str]:
    """Returns the text and the finish reason of a chunk, whose fields nobody has checked."""
    choices = getattr(chunk, "choices", None)
    if choices is None or choices == []:
        return "", ""
    if not isinstance(choices, list):
        raise ValueError("'choices' is no list")
    text = getattr(getattr(choices[0], "delta", None), "content", None)
    if text is not None and not isinstance(text, str):
        raise ValueError("'content' is no text")
    reason = getattr(choices[0], "finish_reason", None)
    return text or "", reason if isinstance(reason, str) else ""


def _usage(chunk: Any) -> Tokens | None:
    usage = getattr(chunk, "usage", None)
    sent, received = getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)
    if isinstance(sent, int) and isinstance(received, int) and sent >= 0 and received >= 0:
        return Tokens(sent, received)
    return None
