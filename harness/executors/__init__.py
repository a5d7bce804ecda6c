"""Evaluation runs: planning, scheduling, building ahead, and judging on this machine or on Ray."""
