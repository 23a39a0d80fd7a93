"""A certificate authority of the bed's own, and what it signs, by openssl."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.commands import output_of

_DAYS = "3650"


@dataclass(frozen=True)
class Identity:
    """A key and the certificate for it, both PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """The certificate authority in `directory`."""

    directory: Path

    @property
    def certificate(self) -> Path:
        """Its own certificate."""
        return self.directory / "ca.crt"

    @property
    def _key(self) -> Path:
        return self.directory / "ca.key"

    def create(self) -> None:
        """Make its key and certificate, unless they are there."""
        if self.certificate.is_file():
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        _make_key(self._key)
        usage = "keyUsage=critical,keyCertSign,digitalSignature"
        words = ["openssl", "req", "-x509", "-new", "-subj", "/CN=specfleet-testbed", "-days"]
        output_of([*words, _DAYS, "-addext", usage, "-key", self._key, "-out", self.certificate])

    def issue(self, name: str, common_name: str, organization: str = "", hosts: Sequence[str] = ()) -> Identity:
        """Key and certificate `NAME.key`, `NAME.crt`, made unless they are there.

        Args:
            common_name: the user, for Kubernetes.
            organization: the group, for Kubernetes.
            hosts: subject alternative names as openssl writes them: `IP:127.0.0.1`, `DNS:localhost`.
        """
        identity = Identity(self.directory / f"{name}.crt", self.directory / f"{name}.key")
        if identity.certificate.is_file():
            return identity
        _make_key(identity.key)
        extensions = self.directory / f"{name}.ext"
        # Strict clients (Python 3.13 and later) refuse a certificate without the key identifiers.
        lines = ["basicConstraints=critical,CA:FALSE", "extendedKeyUsage=clientAuth,serverAuth"]
        lines += ["subjectKeyIdentifier=hash", "authorityKeyIdentifier=keyid"]
        if hosts:
            lines.append(f"subjectAltName={','.join(hosts)}")
        extensions.write_text("\n".join(lines) + "\n")
        subject = (f"/O={organization}" if organization else "") + f"/CN={common_name}"
        request = output_of(["openssl", "req", "-new", "-key", identity.key, "-subj", subject])
        signer: list[str | Path] = [
            "openssl",
            "x509",
            "-req",
            "-CAcreateserial",
            "-CA",
            self.certificate,
            "-CAkey",
            self._key,
        ]
        output_of([*signer, "-days", _DAYS, "-extfile", extensions, "-out", identity.certificate], stdin=request)
        return identity


def service_account_key(directory: Path) -> Path:
    """The key that signs service-account tokens (RSA: what every client can verify), made unless it is there."""
    key = directory / "service-accounts.key"
    if not key.is_file():
        output_of(["openssl", "genrsa", "-out", key, "2048"])
        key.chmod(0o600)
    return key


def write_kubeconfig(target: Path, server: str, authority: Authority, identity: Identity) -> Path:
    """A kubeconfig with everything embedded (JSON, which is YAML too).

    Args:
        server: URL of the API server.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
        "clusters": [
            {
                "name": "testbed",
                "cluster": {"server": server, "certificate-authority-data": _embedded(authority.certificate)},
            }
        ],
        "users": [
            {
                "name": "testbed",
                "user": {
                    "client-certificate-data": _embedded(identity.certificate),
                    "client-key-data": _embedded(identity.key),
                },
            }
        ],
    }
    target.write_text(json.dumps(config, indent=1))
    target.chmod(0o600)
    return target


def _make_key(target: Path) -> None:
    output_of(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", target])
    target.chmod(0o600)


def _embedded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
