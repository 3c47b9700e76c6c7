"""All runs in a web browser, live."""

from leadline.core.commands import Command

VIEW = Command("Browse all runs in a web browser, live.", "leadline.features.dashboard.command:view", "look")
