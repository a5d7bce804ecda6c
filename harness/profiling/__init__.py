"""Reads a GPU's performance counters for a solution's kernels with Nsight Compute."""
