"""Floor 3: executing a run. Spec to plan to documents to answers to records."""
