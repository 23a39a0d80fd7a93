"""The image of the stub engine, started by vLLM's own command line."""
