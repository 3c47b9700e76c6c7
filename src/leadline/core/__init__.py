"""Floor 0: nouns, spec, contracts, errors, registry, seeds, digests."""
