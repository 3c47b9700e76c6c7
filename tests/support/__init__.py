"""Shared by tests: fake servers, scripted and tiny models, planted records, data files."""
