"""`openai:` any OpenAI-compatible server."""
