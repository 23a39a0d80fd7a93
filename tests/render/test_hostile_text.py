"""No text in a SpecDeployment changes the structure of what is rendered: it stays one value at its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.cli.render import manifest_yaml
from specfleet.render.objects import render_all
from specfleet.render.validate import validate_document
from tests.render.cases import FIXTURES, SETTINGS

Document = dict[str, Any]

NASTY = [
    "a: b",
    "- x\n- y",
    "a\n---\nkind: Secret",
    "{{ .Values.x }}",
    "{% include 'x' %}",
    "${HOME}",
    "$(cat /etc/passwd)",
    "`id`",
    "'; DROP",
    '"}, {"x": "',
    "\\u0000",
    "&anchor *anchor",
    "!!python/object:os.system",
    "%DYNAMIC_METADATA(a:b)%",
    "%REQ(authorization)%",
    "# comment",
    "null",
    "1e3",
    "yes",
    "--api-key=x",
    "x --host 1.2.3.4",
    "other\x85breaks\u2028of\u2029lines",
]
any_text = st.one_of(st.sampled_from(NASTY), st.text(min_size=1, max_size=40))
printable = st.one_of(
    st.sampled_from([text for text in NASTY if text.isprintable()]),
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40),
)


def document(flag: str, variable: str, header: str, claim: str, note: str) -> Document:
    """A SpecDeployment with the texts wherever the schema takes free ones."""
    base: Document = yaml.safe_load((FIXTURES / "vllm/0.32/ngram-claim/cr.yaml").read_text())
    spec = base["spec"]
    spec["engine"]["args"]["chat-template"] = flag
    spec["engine"]["env"].append({"name": "FREE", "value": variable})
    spec["target"]["source"]["persistentVolumeClaim"]["claimName"] = claim
    spec["pools"]["template"] = {"metadata": {"annotations": {"note": note}}}
    spec["routing"] = {
        "routes": [{"name": "one", "match": [{"header": {"name": "x-route", "value": header}}]}, {"name": "rest"}]
    }
    return base


def skeleton(value: Any) -> Any:
    """Keys and lengths without any value."""
    if isinstance(value, dict):
        return {key: skeleton(item) for key, item in value.items()}
    if isinstance(value, list):
        return [skeleton(item) for item in value]
    return type(value).__name__


def all_parts(manifests: list[Document]) -> Iterator[Any]:
    """Each object, and each document inside a ConfigMap, as its reader parses it."""
    for manifest in manifests:
        yield manifest
        if manifest["kind"] == "ConfigMap":
            for name, text in manifest["data"].items():
                if name.endswith(".yaml"):
                    yield yaml.load(text, Loader=yaml.CSafeLoader)


def rendered(source: Document) -> list[Document] | None:
    """All objects after a round trip through YAML, or None where the object is refused."""
    deployment, findings = validate_document(source, SETTINGS)
    if deployment is None or findings:
        return None
    text = manifest_yaml(render_all(deployment, SETTINGS))
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


PLAIN = rendered(document("plain", "plain", "plain", "plain", "plain"))


@settings(max_examples=60, deadline=None)
@given(flag=any_text, variable=any_text, header=printable, claim=any_text, note=any_text)
def test_texts_stay_values(flag: str, variable: str, header: str, claim: str, note: str) -> None:
    source = document(flag, variable, header, claim, note)
    manifests = rendered(source)
    assert PLAIN is not None
    if manifests is None:
        return

    assert [skeleton(part) for part in all_parts(manifests)] == [skeleton(part) for part in all_parts(PLAIN)]
    pod = next(
        item for item in manifests if item["metadata"]["name"] == "coder-lookup" and item["kind"] == "Deployment"
    )
    template = pod["spec"]["template"]
    engine = template["spec"]["containers"][0]
    assert f"--chat-template={flag}" in engine["args"]
    assert {"name": "FREE", "value": variable} in engine["env"]
    assert template["metadata"]["annotations"]["note"] == note
    assert template["spec"]["volumes"][1]["persistentVolumeClaim"]["claimName"] == claim
    routes = next(item for item in manifests if item["metadata"]["name"] == "coder-routes")
    assert header in _texts(yaml.load(routes["data"]["rds.yaml"], Loader=yaml.CSafeLoader))


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def test_the_plain_object_is_rendered() -> None:
    assert PLAIN is not None
    assert len(PLAIN) == 12
