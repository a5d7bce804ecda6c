"""Draws inputs, evaluates references, compares results and decides verdicts.

This package never imports a candidate or the worker.
"""
