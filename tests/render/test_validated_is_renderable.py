"""Whatever a document holds, checking it never fails; and what is checked without errors can be rendered."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specfleet.api.findings import errors
from specfleet.cli.render import manifest_yaml
from specfleet.render.objects import render_all
from specfleet.render.validate import validate_document
from tests.render.cases import FIXTURES, SETTINGS

Document = dict[str, Any]
VARIANTS = [
    file
    for folders in ("vllm/0.32/*", "sglang/0.5.3/*", "sglang/0.5.23/*", "trtllm/1.4.0rc1/*", "external/*/*")
    for file in sorted(FIXTURES.glob(f"{folders}/cr.yaml"))
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 70),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(["", "0.32.0", "Always", "1h", "x" * 5000, "owner/model", "/models/x", "engine", "--port=1", "-1"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["name", "value", "spec", "containers", "env", "$patch", "metadata", "labels", "x", "min_p"]
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a document."""
    found = [path]
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        found += places(value, (*path, key))
    return found


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_changed_document_is_refused_or_rendered(data: st.DataObject) -> None:
    document = yaml.safe_load(data.draw(st.sampled_from(VARIANTS)).read_text())
    if "external" not in document["spec"]["pools"]:
        document["spec"]["pools"].setdefault("template", {"spec": {"containers": [{"name": "engine"}]}})
    path = data.draw(st.sampled_from(places(document)[1:]))
    *parents, last = path
    node: Any = document
    for part in parents:
        node = node[part]
    node[last] = data.draw(values)

    deployment, findings = validate_document(document, SETTINGS)

    assert all("\n" not in finding.line() and finding.message for finding in findings)
    if deployment is None or errors(findings):
        assert findings
    else:
        objects = render_all(deployment, SETTINGS)
        assert list(yaml.load_all(manifest_yaml(objects), Loader=yaml.CSafeLoader)) == objects
