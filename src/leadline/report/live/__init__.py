"""A run that another process is writing: what its records file has grown by, and where the run stands."""
