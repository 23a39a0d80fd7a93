"""Whether a pool can take what a decision sends to it."""
