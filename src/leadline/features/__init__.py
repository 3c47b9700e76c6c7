"""Features: each folder can be deleted, and the rest still works. They enter through entry points."""
