"""`hf:` a causal language model in this process, through transformers."""
