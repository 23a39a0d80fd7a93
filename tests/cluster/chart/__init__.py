"""The chart on a real API server."""
