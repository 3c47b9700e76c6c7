"""Leadline: how much of a context window can a language model really use?"""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("leadline")
