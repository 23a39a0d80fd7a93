"""`specfleet replay --prometheus`: recorded series, read and told as what a policy would have done."""
