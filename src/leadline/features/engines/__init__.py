"""Serving engines in process: `vllm:` and `sglang:`, each in a process of its own."""
