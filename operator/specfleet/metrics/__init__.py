"""The edge towards the routers' counters, and the operator's own metrics."""
