"""Whether a draft fits its target, from both models' files and before an accelerator is taken.

The core is pure; `directory`, `hub` and `reading` read files, and `job` is what runs in the cluster.
"""
