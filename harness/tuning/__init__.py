"""Searches a template's parameters for the fastest correct setting."""
