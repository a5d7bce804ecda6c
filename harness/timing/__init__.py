"""Computes latencies, speedups and scores from raw samples."""
