"""Mutation testing of the decision rule: `make mutation`. See docs/contributing/mutation.md."""
