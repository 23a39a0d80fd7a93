"""How long a CoreDNS server keeps answers, from its Corefile. Pure.

Defaults as in CoreDNS' pages of the plugins `kubernetes` (ttl 5) and `cache` (success 3600, denial 1800). A negative
answer about a Service lives as long as the SOA record says, which is `ttl` again, and no longer than the cache does.
"""

from __future__ import annotations

from dataclasses import dataclass

_KUBERNETES_TTL = 5
_SUCCESS = 3600
_DENIAL = 1800
_CLUSTER_ZONE = "cluster.local"


@dataclass(frozen=True)
class Kept:
    """Seconds for which an answer about a Service may be older than the truth. `stale`: expired answers are served."""

    positive: int
    negative: int
    stale: bool


def kept(text: str) -> Kept | None:
    """The longest times of the server blocks that answer for the cluster; None where no block does."""
    found = [one for block in _server_blocks(text) if (one := _block(*block)) is not None]
    if not found:
        return None
    return Kept(max(one.positive for one in found), max(one.negative for one in found), any(one.stale for one in found))


@dataclass(frozen=True)
class _Line:
    """Words of one line, and the plugin whose block it stands in (its own, for the first line of a plugin)."""

    plugin: str
    words: list[str]


def _server_blocks(text: str) -> list[tuple[list[str], list[_Line]]]:
    """The zones and the lines of each server block."""
    blocks: list[tuple[list[str], list[_Line]]] = []
    depth, plugin = 0, ""
    for raw in text.splitlines():
        words = raw.partition("#")[0].replace("{", " { ").replace("}", " } ").split()
        said = [word for word in words if word not in "{}"]
        if said and depth == 0:
            blocks.append((said, []))
        elif said:
            plugin = said[0] if depth == 1 else plugin
            blocks[-1][1].append(_Line(plugin, said))
        depth += words.count("{") - words.count("}")
    return blocks


def _block(zones: list[str], lines: list[_Line]) -> Kept | None:
    plugins = {line.plugin for line in lines}
    own = "kubernetes" in plugins
    if not own and not any(_CLUSTER_ZONE in zone for zone in zones):
        return None
    ttl, success, denial, stale = _KUBERNETES_TTL, _SUCCESS, _DENIAL, False
    for line in lines:
        match line.plugin, line.words:
            case "kubernetes", ["ttl", seconds, *_] if seconds.isdigit():
                ttl = int(seconds)
            case "cache", ["cache", seconds, *_] if seconds.isdigit():
                success = denial = int(seconds)
            case "cache", ["success", _, seconds, *_] if seconds.isdigit():
                success = int(seconds)
            case "cache", ["denial", _, seconds, *_] if seconds.isdigit():
                denial = int(seconds)
            case "cache", ["serve_stale", *_]:
                stale = True
    if not own or "cache" not in plugins:
        # In front of the cluster's own server an answer lives no longer than that one said, unless it is served stale.
        return Kept(0, 0, stale)
    return Kept(min(ttl, success), min(ttl, denial), stale)
