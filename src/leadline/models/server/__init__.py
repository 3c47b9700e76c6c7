"""What `openai:` is made of: asking a server, and understanding what it says."""
