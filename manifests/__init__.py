"""Ways to install specfleet other than Helm, and the tool that renders them."""
