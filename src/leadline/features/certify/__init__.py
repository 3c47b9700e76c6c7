"""Certification: did a change of engine, quantisation or setting cost long context? Kept, lost or undecided."""

from leadline.core.commands import Command

CERTIFY = Command(
    "Say whether a change of engine or quantisation cost context.",
    "leadline.features.certify.command:certify",
    "compare",
)
