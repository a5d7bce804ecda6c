"""Checks of a machine: what it has for judging, what it lacks, and how to get that."""
