"""Tests correctness: runs a candidate under fresh seeds and compares outputs and gradients."""
