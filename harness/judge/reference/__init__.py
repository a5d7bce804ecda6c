"""Computes expected values in float64, and how far an honest candidate may be from them."""
