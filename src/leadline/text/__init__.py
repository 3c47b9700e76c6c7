"""Floor 1: tokens and length. Tokenizers, chat templates, haystacks, and documents of an exact length."""
