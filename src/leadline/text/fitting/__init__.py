"""Documents of an exact length: pieces counted once per tokenizer, facts planted, one piece cut to size."""
