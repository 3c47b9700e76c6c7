"""Floor 2: trackers that a team already looks at. Plugins; siblings do not know each other."""
