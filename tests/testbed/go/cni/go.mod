module specfleet.dev/testbed/cni

go 1.26

tool (
	github.com/containernetworking/plugins/plugins/main/bridge
	github.com/containernetworking/plugins/plugins/main/loopback
	github.com/containernetworking/plugins/plugins/ipam/host-local
	github.com/containernetworking/plugins/plugins/meta/portmap
)

require github.com/containernetworking/plugins v1.9.1
