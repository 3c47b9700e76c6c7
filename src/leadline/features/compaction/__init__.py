"""Do facts survive the compaction of a context? Compactors as plugins, and recall at retained tokens."""
