"""`helm test`: the operator answers, and the API server knows SpecDeployments and lets the operator read them.

Standard library only. Arguments: the operator's base URL, then the namespaces to read in (none: all).
"""

import json
import os
import ssl
import sys
import urllib.request

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
API_GROUP = "/apis/specfleet.dev/v1alpha1"


def get(url: str, token: str | None = None, context: ssl.SSLContext | None = None) -> bytes:
    """The body of a GET; raises OSError where the answer is no success."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - the URLs are the chart's own
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:  # noqa: S310
        body: bytes = answer.read()
        return body


def main(operator: str, namespaces: list[str]) -> int:
    """Print one line a check; 0 if all passed."""
    account = os.environ.get("SPECFLEET_CHECK_ACCOUNT", ACCOUNT)
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    context = ssl.create_default_context(cafile=f"{account}/ca.crt")
    with open(f"{account}/token", encoding="utf-8") as file:
        token = file.read().strip()

    def installed() -> None:
        kinds = [entry["kind"] for entry in json.loads(get(server + API_GROUP, token, context))["resources"]]
        if "SpecDeployment" not in kinds:
            raise OSError(f"expected the kind SpecDeployment, found {kinds}")

    def readable() -> None:
        for scope in [f"/namespaces/{name}" for name in namespaces] or [""]:
            get(f"{server}{API_GROUP}{scope}/specdeployments?limit=1", token, context)

    checks = {
        "the operator is well (/healthz)": lambda: get(f"{operator}/healthz"),
        "the operator is ready (/readyz)": lambda: get(f"{operator}/readyz"),
        "the CustomResourceDefinition is installed": installed,
        "the operator's account may read SpecDeployments": readable,
    }
    failed = 0
    for name, check in checks.items():
        try:
            check()
        except OSError as error:
            failed += 1
            print(f"FAILED  {name}: {error}")
        else:
            print(f"ok      {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
