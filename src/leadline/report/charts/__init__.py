"""Chart definitions, one for page, png, svg and pdf."""
