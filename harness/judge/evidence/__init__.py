"""Collects evidence of what a candidate ran: its kernels, torch's operators, its share of work."""
