"""Compares what a candidate returned with what was expected, and explains a failure in words."""
