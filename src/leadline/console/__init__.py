"""Floor 4: what the commands of the core and of features share: output, options of a run, progress."""
