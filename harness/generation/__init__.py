"""Puts language models into the loop: prompts, strategies, budgets, the gate for the winner."""

from harness.generation.attempts import Attempt, Kind, Outcome, Proposer, ProposerFailed, Reply, Tokens, Turn
from harness.generation.search import Budget, Verdict, search

__all__ = [
    "Attempt",
    "Budget",
    "Kind",
    "Outcome",
    "Proposer",
    "ProposerFailed",
    "Reply",
    "Tokens",
    "Turn",
    "Verdict",
    "search",
]
