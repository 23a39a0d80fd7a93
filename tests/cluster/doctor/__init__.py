"""`specfleet doctor` on a real API server."""
