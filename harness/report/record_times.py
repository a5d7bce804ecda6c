"""Reads the times of records, which other programs may have written."""

from __future__ import annotations

import datetime


def time_of(created_at: str) -> datetime.datetime | None:
    """Parses a record's ``created_at``; None if it is no time, or has no zone."""
    try:
        found = datetime.datetime.fromisoformat(created_at)
        return found.astimezone(datetime.UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
