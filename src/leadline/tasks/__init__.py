"""Floor 2: task plugins, one family a file."""
