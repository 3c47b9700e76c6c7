"""Floor 2: what a run folder says, finished or still growing: table, totals, progress, verdict."""
