"""Floor 2: model plugins."""
