"""Operator settings: from a file, from the environment, and what is said when they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from specfleet.settings import OperatorSettings, SettingsProblem, load_settings


@pytest.mark.parametrize("key", ["allowHostPath", "allow_host_path"])
def test_a_file_may_use_either_way_of_writing(tmp_path: Path, key: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"{key}: true\nwatchNamespaces: [a, b]\n")

    settings = load_settings(file)

    assert settings.allow_host_path is True
    assert settings.watch_namespaces == ["a", "b"]
    assert settings.router_image == OperatorSettings().router_image


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("routerImage: from-file\noperatorImage: from-file\n")
    monkeypatch.setenv("SPECFLEET_ROUTER_IMAGE", "from-environment")

    settings = load_settings(file)

    assert (settings.router_image, settings.operator_image) == ("from-environment", "from-file")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "allowHostPaths: true\n",
            "allow_host_paths is no setting; known settings are allow_host_namespaces, allow_host_path",
        ),
        ("allowHostPath: perhaps\n", "allow_host_path"),
        ("a: [1\n", "cannot be read"),
        ("- a list\n", "cannot be read"),
    ],
)
def test_wrong_settings_are_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)

    with pytest.raises(SettingsProblem) as problem:
        load_settings(file)

    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsProblem, match=r"expected a settings file at .*none\.yaml, found none"):
        load_settings(tmp_path / "none.yaml")
