"""What tests share: fake servers, scripted and tiny models, planted records, data files."""
