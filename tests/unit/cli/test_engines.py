"""`specfleet engines`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from specfleet.cli.main import app
from specfleet.engines import reference


def engines(*arguments: str) -> tuple[int, str, str]:
    """Exit status, output and errors of the command."""
    ended = CliRunner().invoke(app, ["engines", *arguments])
    return ended.exit_code, ended.stdout, ended.stderr


def test_the_text_names_each_mode_with_its_releases_and_needs() -> None:
    status, text, _ = engines()

    assert status == 0
    assert "Medusa  method medusa, 0.8.5 to 0.32.0" in text
    assert "DraftModel  method draft_model, 0.8.5 to 0.9.2, since 0.15.0" in text
    assert "not with --async-scheduling up to 0.32: vLLM refuses to start" in text


def test_one_release_shows_what_it_can_do_and_no_more() -> None:
    _, old, _ = engines("--release", "0.32.0")
    _, new, _ = engines("-r", "0.33")

    assert "Medusa" in old
    assert "Medusa" not in new
    assert "fly_window_size" not in old
    assert "fly_window_size" in new


def test_a_release_with_two_engines_says_what_only_the_first_does() -> None:
    _, text, _ = engines("--release", "0.9.2")
    _, newer, _ = engines("--release", "0.15.0")

    assert text.startswith("vLLM 0.9.2")
    assert "on the V0 engine only, whose counters tell no acceptance" in text
    assert "V0 engine only" not in newer


def test_json_has_the_same_for_programs() -> None:
    _, text, _ = engines("-o", "json", "-r", "0.30")

    (document,) = json.loads(text)
    modes = {mode["mode"]: mode for mode in document["modes"]}

    assert document["engine"] == "vLLM"
    assert set(modes) == {"NGram", "Suffix", "DraftModel", "Medusa", "EAGLE", "EAGLE3", "MTP", "DFlash"}
    assert modes["MTP"]["method"] == "mtp"
    assert modes["Suffix"]["package"] == "arctic-inference==0.1.1"
    assert {flag["flag"] for flag in modes["EAGLE3"]["conflictingFlags"]} == {"logits-processors"}
    assert all(mode["sources"] for mode in modes.values())


def test_a_release_of_sglang_shows_sglang_alone() -> None:
    _, both, _ = engines()
    _, old, _ = engines("-r", "0.5.10")
    _, text, _ = engines("-r", "0.5.23", "-o", "json")

    assert "SGLang 0.5.2 to 0.5.23 are rendered" in both
    assert "vLLM" not in old
    assert "DFlash" not in old
    (document,) = json.loads(text)
    methods = {mode["mode"]: mode["method"] for mode in document["modes"]}
    assert methods["DFlash"] == "DFLASH"
    assert methods["DraftModel"] == "STANDALONE"


@pytest.mark.parametrize("release", ["0.4.6", "0.8.4", "0.34.0", "newest"])
def test_a_release_outside_the_table_is_answered_with_its_bounds(release: str) -> None:
    status, _, said = engines("--release", release)

    assert status == 2
    assert "write one of vLLM from 0.8.5 to 0.33, of SGLang from 0.5.2 to 0.5.23, or of TensorRT-LLM from" in said


def test_the_page_is_what_the_tables_say() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page() + "\n", "run make crds"


def test_a_release_of_tensorrt_llm_shows_it_alone_and_what_rests_on_little() -> None:
    _, whole, _ = engines()
    _, old, _ = engines("-r", "1.2.1")
    _, text, _ = engines("-r", "1.4.0rc1", "-o", "json")
    (document,) = json.loads(text)
    modes = {mode["mode"]: mode for mode in document["modes"]}

    assert "TensorRTLLM 1.0.0 to 1.4.0rc4 are rendered" in whole
    assert "vLLM" not in old
    assert "method DraftTarget" in old
    assert "DFlash" not in old
    assert "Weak: None of it was run." in old
    assert modes["DraftModel"]["method"] == "Draft_Target"
    assert "acceptance_rate_threshold" in modes["EAGLE3"]["args"]
    assert "acceptance_window" not in modes["EAGLE3"]["args"]
    assert all(mode["sources"] for mode in modes.values())
