module specfleet.dev/testbed/pause

go 1.26
