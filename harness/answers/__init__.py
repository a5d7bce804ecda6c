"""Extracts the final code from a language model's raw answer, without executing any of it."""
