"""The whole node: the demo, its smoke test and the longer tests with kubelet, Service, Envoy, operator and engine."""
