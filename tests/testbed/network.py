"""The bed's addresses, its bridge, and the packet rules that go with them."""

from __future__ import annotations

import ipaddress
import json

from tests.testbed.commands import output_of, succeeds
from tests.testbed.errors import TestbedError

BRIDGE = "specfleet0"
NODE_ADDRESS = "10.213.0.1"
POD_CIDR = "10.213.0.0/24"
SERVICE_CIDR = "10.214.0.0/16"
DNS_ADDRESS = "10.214.0.10"
API_PORT = 6443
_COMMENT = "specfleet-testbed"
_TABLES = ("filter", "nat", "mangle", "raw")


def create() -> None:
    """Make the bridge with the node's address, and let pods out of it.

    Raises:
        TestbedError: the bed's addresses are in use on this machine.
    """
    _check_free()
    output_of(["ip", "link", "add", BRIDGE, "type", "bridge"])
    output_of(["ip", "address", "add", f"{NODE_ADDRESS}/24", "dev", BRIDGE])
    output_of(["ip", "link", "set", BRIDGE, "up"])
    comment = ["-m", "comment", "--comment", _COMMENT]
    for direction in ("-i", "-o"):
        output_of(["iptables", "-w", "-I", "FORWARD", direction, BRIDGE, *comment, "-j", "ACCEPT"])
    leaving = ["-s", POD_CIDR, "!", "-d", POD_CIDR, "!", "-o", BRIDGE]
    output_of(["iptables", "-w", "-t", "nat", "-A", "POSTROUTING", *leaving, *comment, "-j", "MASQUERADE"])


def remove() -> None:
    """Remove the bridge, our rules, and the chains that kube-proxy and the kubelet left."""
    if succeeds(["ip", "link", "show", BRIDGE]):
        output_of(["ip", "link", "delete", BRIDGE])
    for family in ("iptables", "ip6tables"):
        for table in _TABLES:
            _clean_table(family, table)
    for option, subnet in (("-s", POD_CIDR), ("-d", POD_CIDR), ("-d", SERVICE_CIDR)):
        succeeds(["conntrack", "-D", option, subnet])


def present() -> bool:
    """Whether the bridge is there."""
    return succeeds(["ip", "link", "show", BRIDGE])


def leftovers(saved_rules: str) -> tuple[list[str], list[str]]:
    """What of a table belongs to a bed: (chains to remove, rules to delete from other chains).

    Args:
        saved_rules: what `iptables-save -t TABLE` prints.
    """
    lines = saved_rules.splitlines()
    chains = [line[1:].split()[0] for line in lines if line.startswith(":KUBE-")]
    rules = [
        "-D" + line[2:]
        for line in lines
        if line.startswith("-A ") and line.split()[1] not in chains and _ours(line, chains)
    ]
    return chains, rules


def _ours(rule: str, chains: list[str]) -> bool:
    words = rule.split()
    target = words[words.index("-j") + 1] if "-j" in words else ""
    return target in chains or f"--comment {_COMMENT}" in rule


def _clean_table(family: str, table: str) -> None:
    if not succeeds([family, "-w", "-t", table, "-S"]):
        return
    chains, rules = leftovers(output_of([f"{family}-save", "-t", table]))
    if not chains and not rules:
        return
    script = [f"*{table}", *(f":{chain} - [0:0]" for chain in chains), *rules, *(f"-X {chain}" for chain in chains)]
    output_of([f"{family}-restore", "-w", "--noflush"], stdin="\n".join([*script, "COMMIT", ""]))


def _check_free() -> None:
    wanted = [ipaddress.ip_network(cidr) for cidr in (POD_CIDR, SERVICE_CIDR)]
    for route in json.loads(output_of(["ip", "-json", "route"]) or "[]"):
        if route["dst"] == "default":
            continue
        used = ipaddress.ip_network(route["dst"], strict=False)
        if any(network.overlaps(used) for network in wanted):
            raise TestbedError(
                f"expected {POD_CIDR} and {SERVICE_CIDR} to be free on this machine, "
                f"but there is a route to {used} by {route.get('dev', 'another host')}"
            )
