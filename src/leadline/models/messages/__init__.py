"""Models behind APIs that take messages in blocks, count prompts without reading them and cache what is marked."""
