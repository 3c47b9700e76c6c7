"""Floor 2: scorer plugins. Pure functions from a probe and its answer to a score."""
