"""Writes new problems and templates that evaluate to PASSED without an edit."""
