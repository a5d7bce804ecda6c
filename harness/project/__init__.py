"""Reads a user's project: problems, solutions, settings and their folders."""
