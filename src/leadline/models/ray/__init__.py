"""Replicas of an in-process model on several GPUs or machines, as Ray actors (extra `ray`)."""
