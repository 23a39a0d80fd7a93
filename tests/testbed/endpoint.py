"""Ask an HTTPS endpoint of the bed whether it is ready."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path

from tests.testbed.pki import Identity


def answers_ok(url: str, ca: Path, identity: Identity, timeout_seconds: float = 2.0) -> bool:
    """Whether a GET of `url` is answered with a status below 300."""
    try:
        context = ssl.create_default_context(cafile=str(ca))
        context.load_cert_chain(identity.certificate, identity.key)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(url, timeout=timeout_seconds):
            return True
    except (OSError, urllib.error.URLError):
        return False
