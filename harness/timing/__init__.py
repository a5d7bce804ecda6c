"""From raw samples to figures."""
