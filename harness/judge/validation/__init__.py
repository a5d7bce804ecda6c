"""Checks whether a problem can be judged by: deterministic, sensitive to its inputs, not passed by wrong answers."""
