"""The worker: the process that runs untrusted code.

It shares only the wire and records with the judge.
"""
