"""Checks of an endpoint: truncation, templates, counts, caches."""

from leadline.core.commands import Command

DOCTOR = Command(
    "Check a server: truncation, templates, counts, and more.", "leadline.features.doctor.command:doctor", "check"
)
