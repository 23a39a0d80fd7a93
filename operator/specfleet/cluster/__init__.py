"""The edge towards the Kubernetes API: one client, one write gate, one lease."""
