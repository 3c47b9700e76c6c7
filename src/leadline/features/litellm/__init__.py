"""`litellm:` any hosted model that the litellm library knows, counted by receipts."""
