"""The static scan: reports what a solution's text shows before it runs.

Its findings are evidence for a reader. They decide no verdict unless the user enforces the rule.
"""
