"""Floor 1: records to estimates. Pure functions."""
