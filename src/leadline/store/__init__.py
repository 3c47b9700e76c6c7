"""Floor 1: records on disk."""
