"""What KV cache a model and its draft leave room for: shapes in, tokens and sequences out. Pure."""
