"""Floor 2: scorer plugins. Pure functions from a question and its answer to a score."""
