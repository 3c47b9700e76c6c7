"""Log-probability metrics: retrieval gain and its relatives, with perplexity beside them."""
