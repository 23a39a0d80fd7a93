"""Commands that let an engine finish what it runs, where the engine itself would not. Pure."""

from __future__ import annotations

# Constant but for three numbers and two texts of ours. It ends early where nothing runs or waits; a page that does not
# come is that of a busy engine, or of one that is gone, whose container then ends this too.
_SCRIPT = """\
import re, time, urllib.request
time.sleep({leave})
end = time.monotonic() + {most}
while time.monotonic() < end:
    try:
        page = urllib.request.urlopen("http://127.0.0.1:{port}{path}", timeout=5).read().decode()
        if not sum(float(number) for number in re.findall(r"^{gauge}(?:\\{{.*\\}})? (\\S+)$", page, re.M)):
            break
    except (OSError, ValueError):
        pass
    time.sleep(1)
"""

# For engines whose page is not known to tell: of a server that closes unused connections within seconds, one that is
# open has a request. The state 01 is ESTABLISHED; addresses are ADDRESS:PORT in hexadecimal.
_CONNECTIONS_SCRIPT = """\
import time
def open_connections():
    for name in ("tcp", "tcp6"):
        try:
            rows = [line.split() for line in open("/proc/net/" + name).readlines()[1:]]
        except OSError:
            continue
        if any(row[1].endswith(":{port:04X}") and row[3] == "01" for row in rows):
            return True
    return False
time.sleep({leave})
end = time.monotonic() + {most}
while open_connections() and time.monotonic() < end:
    time.sleep(1)
"""


def drain_command(*, port: int, path: str, gauge: str, leave_seconds: int, most_seconds: int) -> tuple[str, ...]:
    """For a pod's end: go on serving until the pod is out of the routers' sight, then wait for requests in flight.

    Args:
        gauge: a pattern for the names of the gauges of requests that run and wait.
        leave_seconds: how long new requests can come.
        most_seconds: how long those in flight may take then.
    """
    script = _SCRIPT.format(leave=leave_seconds, most=most_seconds, port=port, path=path, gauge=gauge)
    return ("python3", "-c", script)


def connections_command(*, port: int, leave_seconds: int, most_seconds: int) -> tuple[str, ...]:
    """As `drain_command`, by the connections to the server: it must close unused ones soon.

    Args:
        port: the server's, in the container's own network.
        leave_seconds: how long new requests can come; longer than unused connections stay open.
        most_seconds: how long those in flight may take then.
    """
    return ("python3", "-c", _CONNECTIONS_SCRIPT.format(port=port, leave=leave_seconds, most=most_seconds))
