"""Floor 4: the dashboard, pages over HTTP on a local, read-only server."""
