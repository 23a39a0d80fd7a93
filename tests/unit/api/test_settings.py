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
        (
            "prometheus: {urll: x}",
            "prometheus.urll is no setting; known settings are prometheus.allow_url_in_resources",
        ),
        ("prometheus: {url: 'ftp://x'}", "prometheus.url: expected a base URL such as http://prometheus"),
        ("prometheus: {url: 'http://a:b@x'}", "without credentials and without a query, found 'http://a:b@x'"),
        ("prometheus: {passwordFile: /x, url: http://a}", "needs both username_file and password_file"),
        ("prometheus: {bearerTokenFile: /x}", "bearer_token_file is for the server at url: write url too"),
        (
            "prometheus: {url: http://a, bearerTokenFile: /x, usernameFile: /y, passwordFile: /z}",
            "exclude each other: write one of them",
        ),
        ("prometheus: {timeoutSeconds: 900}", "prometheus.timeout_seconds: Input should be less than or equal to 60"),
        ("prometheus: true", "prometheus: "),
        ("podMonitor: {enabled: perhaps}", "pod_monitor.enabled: expected auto, true or false, found 'perhaps'"),
        ("podMonitor: {labels: {release: a b}}", "pod_monitor.labels.release: expected the value of a label"),
        ("router: {resources: {limits: {cpu: lots}}}", "router.resources.limits.cpu: expected a quantity such as 250m"),
        ("router: {replicas: 0}", "router.replicas: Input should be greater than or equal to 1, found 0"),
        ("engineImages: {other: a}", "engine_images.other: Input should be 'vLLM', 'SGLang' or 'TensorRTLLM'"),
        ("engineImages: {vLLM: 'a/b:tag'}", "engine_images.vLLM: expected a repository without a tag"),
    ],
)
def test_wrong_settings_are_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)

    with pytest.raises(SettingsProblem) as problem:
        load_settings(file)

    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


def test_groups_take_either_way_of_writing_and_maps_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        """
        podMonitor: {intervalSeconds: 15, labels: {Release: myStack}}
        prometheus: {url: http://prometheus:9090, allow_url_in_resources: false}
        engineImages: {vLLM: registry.example.com:5000/vllm}
        router: {resources: {requests: {cpu: 1}}}
        """
    )

    settings = load_settings(file)

    assert settings.pod_monitor.interval_seconds == 15
    assert settings.pod_monitor.labels == {"Release": "myStack"}
    assert settings.prometheus.allow_url_in_resources is False
    assert settings.engine_images == {"vLLM": "registry.example.com:5000/vllm"}
    assert settings.router.resources.manifest() == {"requests": {"cpu": "1"}}


def test_the_environment_reaches_into_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("prometheus: {url: http://file:9090, timeoutSeconds: 5}\n")
    monkeypatch.setenv("SPECFLEET_PROMETHEUS__URL", "http://environment:9090")
    monkeypatch.setenv("SPECFLEET_POD_MONITOR__ENABLED", "false")

    settings = load_settings(file)

    assert (settings.prometheus.url, settings.prometheus.timeout_seconds) == ("http://environment:9090", 5.0)
    assert settings.pod_monitor.enabled is False


def test_files_that_settings_name_are_looked_for_where_the_operator_runs(tmp_path: Path) -> None:
    there, missing = tmp_path / "there", tmp_path / "missing"
    there.write_text("token")
    file = tmp_path / "settings.yaml"
    file.write_text(f"prometheus: {{url: http://a, bearerTokenFile: {there}, caFile: {missing}}}\n")

    (problem,) = load_settings(file).missing_files()

    assert problem.startswith(f"prometheus.ca_file: expected a file at {missing} that can be read")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsProblem, match=r"expected a settings file at .*none\.yaml, found none"):
        load_settings(tmp_path / "none.yaml")
