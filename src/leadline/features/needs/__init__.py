"""Reports accuracy against the evidence that a question needs, beside length."""
