"""Runs in the formats of other tools: Every Eval Ever, Hugging Face model pages, lm-evaluation-harness and Inspect."""

from leadline.core.commands import Command

EXPORT = Command("Write a run in the format of another tool.", "leadline.features.exchange.command:export", "exchange")
