"""Logging of runs to MLflow, Weights & Biases and TensorBoard."""

from leadline.core.commands import Command

LOG = Command(
    "Log runs to MLflow, Weights & Biases or TensorBoard.", "leadline.features.trackers.command:log", "exchange"
)
