"""`sim:`: simulated models that answer from the probe and err with a known probability."""
