"""Checks what a machine has for judging, what it lacks, and how to get that."""
