"""The worker: the process that runs untrusted code.

It never imports the judge. Messages and the arena are in ``wire``.
"""
