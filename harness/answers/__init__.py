"""Finds the final code in a language model's raw answer; nothing of an answer is ever executed here."""
