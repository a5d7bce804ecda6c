"""Speed: paired timing against baselines, certified by a clock that the candidate cannot reach."""
