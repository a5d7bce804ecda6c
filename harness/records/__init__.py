"""Defines evaluation records and their integrity rules, and the store that keeps them."""
