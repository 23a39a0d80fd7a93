"""specfleet: a Kubernetes operator for speculative serving fleets."""
