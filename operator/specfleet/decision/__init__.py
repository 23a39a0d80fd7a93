"""The decision core: when a route's speculation is on. Pure; every clock reading is passed in."""
