"""Floor 3: the pass. Spec to plan to documents to answers to records."""
