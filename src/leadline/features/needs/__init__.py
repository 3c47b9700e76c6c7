"""What a question needs of its document, in a report: accuracy against the evidence, beside length."""
