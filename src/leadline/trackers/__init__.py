"""Floor 3: experiment trackers: MLflow, Weights & Biases, TensorBoard."""
