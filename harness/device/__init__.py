"""Chooses the devices for evaluations and records their state."""
