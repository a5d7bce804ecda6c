"""Checks whether a problem can judge: deterministic, sensitive to inputs, failing wrong answers."""
