"""Compares a candidate's results with the expected ones and explains failures in words."""
