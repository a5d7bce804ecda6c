"""Knows torch's operators (ATen) and their dispatcher."""
