"""Measures speed: paired timing against baselines, certified by the judge's own clock."""
