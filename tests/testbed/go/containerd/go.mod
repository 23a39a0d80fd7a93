module specfleet.dev/testbed/containerd

go 1.26

tool (
	github.com/containerd/containerd/v2/cmd/containerd
	github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
	github.com/containerd/containerd/v2/cmd/ctr
)

require github.com/containerd/containerd/v2 v2.3.7
