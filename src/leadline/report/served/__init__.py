"""The dashboard: a list of runs, their reports while they grow, and comparisons, on a local and read-only server."""
