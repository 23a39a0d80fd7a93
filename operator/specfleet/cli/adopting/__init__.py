"""What `specfleet adopt` is made of: what runs, the Service in front of it, and the SpecDeployment for it."""
