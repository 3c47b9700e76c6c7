"""Hosted models by their own APIs: `anthropic:` and `gemini:`. OpenAI's is `models/openai/responses.py`."""
