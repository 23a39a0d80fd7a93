"""`engine.config`: what is read, what is refused, and that no text in a SpecDeployment changes the file's structure."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.api.findings import errors
from specfleet.engines.trtllm_config import ConfigProblem, config_findings, config_text, read_config
from specfleet.engines.trtllm_tables import OWNED_ANYWHERE, OWNED_CONFIG
from tests.unit.engines.test_trtllm import config, findings, fleet

Document = dict[str, Any]


def test_it_is_merged_into_the_file_of_both_pools() -> None:
    text = "kv_cache_config:\n  free_gpu_memory_fraction: 0.85\n  dtype: fp8\nenable_attention_dp: true\n"
    deployment = fleet("NGram", "1.2.1", config=text)

    assert config(deployment, speculative=False) == {
        "kv_cache_config": {"free_gpu_memory_fraction": 0.85, "dtype": "fp8"},
        "enable_attention_dp": True,
    }
    assert config(deployment).keys() == {"kv_cache_config", "enable_attention_dp", "speculative_config"}


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "null", "---\n"])
def test_an_empty_text_adds_nothing(text: str) -> None:
    assert read_config(text) == {}


def bomb(levels: int) -> str:
    """Each level has the one before nine times: 9^levels values when written out."""
    rows = ["a0: &a0 [x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (bomb(9), "has an anchor or an alias (line 1)"),
        ("a: &x 1\nb: *x", "has an anchor or an alias"),
        ("a: [" * 40, "nested deeper than 12 levels"),
        ("{" * 40, "nested deeper than 12 levels"),
        ("a: [" + "1," * 5000 + "1]", "more than 4000 parts"),
        ("kv: {a: 1\n", "is no YAML"),
        ("a: 1\n b: 2", "is no YAML"),
        ("a: \x01", "is no YAML"),
        ("\tx: 1", "is no YAML"),
        ("- a\n- b", "expected keys with values"),
        ("just text", "expected keys with values"),
        ("5", "expected keys with values"),
        ("a: 1\n---\nb: 2", "holds several documents"),
        ("a: 1\na: 2", "has the key 'a' twice (line 2)"),
        ("a: {b: 1, b: 2}", "has the key 'b' twice"),
        ("a: !!python/object/apply:os.system ['id']", "has a tag"),
        ("a: !!binary aGk=", "has a tag"),
        ("a: !x 1", "has a tag"),
        ("a: {<<: {b: 1}}", "has a merge key"),
        ("{{ speculative_config }}", "has a key that is no text"),
        ("a: 2020-01-01", "has a date at a"),
        ("a: 2020-13-45", "cannot read"),
        ("a: .inf", "has inf at a"),
        ("a: [{b: .nan}]", "has nan at a[].b"),
        ("1: 2", "has the key '1' where a name is expected"),
        ("true: 2", "has the key 'True' where a name is expected"),
        ("a: {1.5: 2}", "has the key '1.5'"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_what_cannot_be_used_is_answered_with_where_it_is(text: str, part: str) -> None:
    (found,) = errors(findings(fleet("NGram", config=text)))

    assert (found.reason, found.path) == ("InvalidValue", "spec.engine.config")
    assert found.message.startswith("engine.config ")
    assert part in found.message


@pytest.mark.parametrize("key", sorted(OWNED_CONFIG))
@pytest.mark.parametrize("spell", [str, str.upper, lambda key: key.replace("_", "-"), lambda key: f'"{key}"'])
def test_owned_keys_are_refused_in_any_spelling(key: str, spell: Any) -> None:
    (found,) = config_findings(f"{spell(key)}: {{}}\n")

    assert found.reason == "OwnedFlag"
    assert OWNED_CONFIG[key] in found.message


@pytest.mark.parametrize("key", sorted(OWNED_ANYWHERE))
@pytest.mark.parametrize("text", ["a: {%s: 1}", "a: {b: [{%s: 1}]}", "a:\n  b:\n    c: {%s: {d: 1}}"])
def test_a_speculative_config_is_refused_at_any_depth(key: str, text: str) -> None:
    (found,) = config_findings(text % key.replace("_", "-"))

    assert found.reason == "OwnedFlag"


def test_other_keys_that_share_a_name_below_the_top_are_the_engines() -> None:
    assert list(config_findings("moe_config: {backend: CUTLASS}\ncuda_graph_config: {max_batch_size: 64}\n")) == []


scalars = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
# What YAML cannot hold in any form is refused as it is read, and cannot come from the API server either.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NASTY = [
    *(
        "a: b",
        "- x\n- y",
        "a\n---\nb: c",
        "{{ own }}",
        "{% raw %}",
        '"}, "x": {"',
        "'",
        "\\",
        "# c",
        "null",
        "yes",
        "1e3",
    ),
    *(
        "0x1F",
        "1:30",
        "&a *a",
        "!!python/name:os.system",
        "\x85\u2028\u2029",
        "\u0000",
        "\U0001f600",
        "<<",
        "~",
        "=",
        "%YAML",
    ),
]
anything = st.sampled_from(NASTY) | texts
values = st.recursive(
    scalars | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything | st.integers(0, 99), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["a_b", "true", "null", "no", "x", "kv_cache_config"]) | anything


@settings(max_examples=300, deadline=None)
@given(
    own=st.dictionaries(names, scalars | anything, max_size=2),
    speculative=st.none() | st.dictionaries(names, values, min_size=1, max_size=3),
    user=st.dictionaries(names, values, max_size=3),
)
def test_whatever_is_in_it_the_file_says_that_and_nothing_else(
    own: Document, speculative: Document | None, user: Document
) -> None:
    taken = {*own, "speculative_config"}
    user = {key: value for key, value in user.items() if key not in taken}
    own.pop("speculative_config", None)
    text = config_text(own, speculative, user)
    expected = own | user | ({} if speculative is None else {"speculative_config": speculative})

    for loader in (yaml.SafeLoader, yaml.CSafeLoader):
        assert yaml.load(text, Loader=loader) == expected
    assert text.isascii()


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.sampled_from("ab:- \n{}[],&*!'\"#|>%@`\t0."), max_size=40))
def test_any_text_is_a_mapping_or_a_sentence(text: str) -> None:
    try:
        found = read_config(text)
    except ConfigProblem:
        return
    assert yaml.safe_load(config_text({}, None, found)) == found
