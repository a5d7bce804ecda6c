"""Runs evaluations: one after another on this machine."""
