"""Scripts between a container and its engine: read only where a real shell would do nothing but start it."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.engines.arguments import read
from specfleet.engines.json_text import read_object
from specfleet.engines.launch import plain_commands

PLAIN = [
    "vllm serve a/b --port 8000",
    "exec vllm serve a/b\n",
    "set -euo pipefail\nset +x; exec vllm serve a/b --port=8000;",
    "# a comment; with | things $X\nvllm serve a/b # and one behind\n",
    "vllm serve a/b#c --x '#' \"#\"",
    "vllm serve \\\n  a/b \\\n  --config '{\"a\": [1, 2]}' \\\n",
    """vllm serve a/b --c "{\\"a\\": \\"it's\\"}" """,
    'vllm serve a/b --c \'{"a": "$HOME `x` && | ; > <"}\'',
    'vllm serve a/b --name "two words" --empty "" --path a\\ b --dollar \\$X "\\$Y" "$ 5" 5$',
    "vllm serve a/b --glob [1,2] 'line\nbreak'",
    "\n\n  vllm   serve\ta/b  \n\n",
]
NOT_PLAIN = {
    "vllm serve $MODEL": "$MODEL",
    'vllm serve "${MODEL}"': "${MODEL}",
    "vllm serve $(cat /model)": "$(cat",
    "vllm serve `cat /model`": "`cat",
    "vllm serve a/b | tee log": "a pipe",
    "vllm serve a/b && true": "&&",
    "vllm serve a/b &": "&",
    "vllm serve a/b > log": "a redirection",
    "vllm serve a/b 2>&1": "a redirection",
    "cat <<EOF": "a redirection",
    "(vllm serve a/b)": "a subshell",
    "{ vllm serve a/b; }": "braces",
    'vllm serve a/b --c {"a":1,"b":2}': "braces",
    "vllm serve ~/model": "home directory",
    "if true; then vllm serve a/b; fi": "'if'",
    "while true; do vllm serve a/b; done": "'while'",
    "vllm serve 'a/b": "a quote (') that does not end",
    'vllm serve "a/b': 'a quote (") that does not end',
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH whose `vllm` prints its arguments, each ended by a NUL."""
    program = tmp_path / "vllm"
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    program.chmod(0o755)
    return f"{tmp_path}:/usr/bin:/bin"


@pytest.mark.parametrize("script", PLAIN)
def test_a_plain_script_is_read_as_a_shell_reads_it(script: str, path: str) -> None:
    printed = subprocess.run(["bash", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True)
    commands, problem = plain_commands(script)

    assert problem is None
    assert commands == [["vllm", *printed.stdout.split("\0")[:-1]]]


@pytest.mark.parametrize("script", NOT_PLAIN)
def test_what_needs_a_shell_is_not_read_and_is_named(script: str) -> None:
    found = read(["/bin/bash", "-c", script])

    assert found.shell
    assert found.model is None
    assert len(found.problems) == 1
    assert NOT_PLAIN[script] in found.problems[0]
    assert "write the engine's command line without a shell" in found.problems[0]


@pytest.mark.parametrize(
    "words", [["sh", "-c"], ["/bin/bash", "-lc"], ["bash", "-euo", "pipefail", "-c"], ["tini", "--", "bash", "-c"]]
)
def test_a_script_is_found_behind_any_options_of_the_shell(words: list[str]) -> None:
    assert read([*words, "exec vllm serve a/b --port 8001"]).port == 8001


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), max_size=6))
def test_any_words_survive_the_quoting_of_a_shell(words: list[str]) -> None:
    commands, problem = plain_commands("exec " + shlex.join(["vllm", "serve", *words]))

    assert problem is None
    assert commands == [["vllm", "serve", *words]]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text(max_size=20) | st.sampled_from(["--model", "-tp", "--speculative-config", "{", "--", "-"])),
    st.sampled_from([["vllm", "serve"], ["sglang", "serve"], ["sh", "-c"], []]),
)
def test_no_words_at_all_make_the_reader_fail(words: list[str], program: list[str]) -> None:
    found = read([*program, *words], image="vllm/vllm-openai:v0.32.0")

    assert found.port > 0
    assert all(problem for problem in found.problems)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_no_text_makes_the_reader_of_json_fail(text: str) -> None:
    value, _ = read_object(text)

    assert value is None or isinstance(value, dict)


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("vllm/vllm-openai:v0.11.0", "0.11.0"),
        ("registry.example:5000/mirror/vllm-openai:v0.11.0-cu129", "0.11.0"),
        ("lmsysorg/sglang:v0.5.3.post1-cu126", "0.5.3.post1"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai@sha256:" + "0" * 64, None),
        ("ghcr.io/llm-d/llm-d-cuda:v0.3.0", None),
        ("lmcache/vllm-openai:v0.3.7", None),
        ("registry.example/rhaiis/vllm-cuda-rhel9:3.2.1", None),
        ("", None),
    ],
)
def test_the_release_is_that_of_images_that_count_as_the_engine_does(image: str, release: str | None) -> None:
    assert read(["vllm", "serve", "a/b"], image=image).release_hint == release


def test_a_switch_that_is_given_in_its_negative_form_is_off() -> None:
    words = ["vllm", "serve", "a/b", "--enable-force-include-usage", "--no-enable-force-include-usage"]

    assert not read(words, image="vllm/vllm-openai:v0.32.0").usage_forced
