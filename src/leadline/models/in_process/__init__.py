"""What `hf:` is made of: reading with transformers, in this process."""
