"""`specfleet doctor`: pure checks over what was read of a cluster, and a thin edge that reads it."""
