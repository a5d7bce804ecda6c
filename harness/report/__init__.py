"""Formats results as tables for people and as JSON for programs."""
