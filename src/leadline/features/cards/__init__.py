"""Things people share of a run: a card for a model card or a post, a badge for a README, a board of many models."""

from leadline.core.commands import Command

CARD = Command("Draw one picture of a run for a model card or a post.", "leadline.features.cards.command:card", "look")
BADGE = Command("Draw a badge of a run for a README.", "leadline.features.cards.command:badge", "look")
BOARD = Command("Write a static page that ranks many models.", "leadline.features.cards.command:board", "compare")
