"""Benchmarks: longer than tests, with results in `build/` and `docs/results/`."""
