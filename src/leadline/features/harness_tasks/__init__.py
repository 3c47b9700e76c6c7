"""Leadline's tasks inside other harnesses: as tasks of Inspect, and as a folder of lm-evaluation-harness."""
