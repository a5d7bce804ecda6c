"""Evaluation records, the integrity rules that they name, and the store that keeps them."""
