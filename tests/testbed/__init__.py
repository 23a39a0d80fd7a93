"""A whole Kubernetes node, or only its API server, on one Linux machine without a container registry.

Standard library only: it has to run before any virtual environment exists.
"""
