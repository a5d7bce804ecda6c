"""The static scan: reports what a solution's text shows before it runs.

Its findings are evidence for a reader and never decide a verdict.
"""
