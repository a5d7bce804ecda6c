"""Takes one candidate, case after case, from a worker's start to a record."""
