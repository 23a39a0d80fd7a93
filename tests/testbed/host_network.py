"""What a build inside an image needs of this machine to reach package indexes: settings and CA certificates.

They are mounted, not set as variables, since a variable given to buildah stays in the image.
"""

from __future__ import annotations

import os
from pathlib import Path

_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_PIP_SETTINGS = {
    "PIP_INDEX_URL": "index-url",
    "PIP_EXTRA_INDEX_URL": "extra-index-url",
    "PIP_TRUSTED_HOST": "trusted-host",
    "PIP_DEFAULT_TIMEOUT": "timeout",
    "PIP_PROXY": "proxy",
}
_UV_SETTINGS = {"UV_DEFAULT_INDEX": "index-url", "UV_INDEX_URL": "index-url"}


def build_mounts(scratch: Path) -> list[str]:
    """Volumes (`SOURCE:TARGET:ro`) for buildah; the settings files are written to `scratch`."""
    mounts = []
    bundle = _certificates()
    if bundle is not None:
        mounts.append(f"{bundle}:{_BUNDLE}:ro")
    pip = ["[global]", "disable-pip-version-check = true", *_settings(_PIP_SETTINGS, "{key} = {value}")]
    uv = [*_settings(_UV_SETTINGS, '{key} = "{value}"'), "system-certs = true"]
    if bundle is not None:
        pip.append(f"cert = {_BUNDLE}")
    for name, target, lines in (("pip.conf", "/etc/pip.conf", pip), ("uv.toml", "/etc/uv/uv.toml", uv)):
        file = scratch / name
        file.write_text("\n".join(lines) + "\n")
        mounts.append(f"{file}:{target}:ro")
    return mounts


def _certificates() -> Path | None:
    for candidate in (os.environ.get("SSL_CERT_FILE"), os.environ.get("REQUESTS_CA_BUNDLE"), str(_BUNDLE)):
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    return None


def _settings(names: dict[str, str], form: str) -> list[str]:
    return [form.format(key=key, value=os.environ[name]) for name, key in names.items() if os.environ.get(name)]
