"""A user's project: problems, solutions, settings and the folders that hold them."""
