"""Operator settings: one model, read from one file (the chart's ConfigMap) and `SPECFLEET_*` variables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

SETTINGS_FILE = "/etc/specfleet/settings.yaml"
_INNER_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")


class SettingsProblem(ValueError):
    """The settings cannot be used; the message is one sentence for whoever wrote them."""


class _SettingsFile(YamlConfigSettingsSource):
    """Takes `allowHostPath` and `allow_host_path` alike."""

    def __call__(self) -> dict[str, Any]:
        return {_INNER_CAPITAL.sub(r"_\1", str(key)).lower(): value for key, value in super().__call__().items()}


class OperatorSettings(BaseSettings):
    """What the cluster's administrator decides for all SpecDeployments."""

    model_config = SettingsConfigDict(env_prefix="SPECFLEET_", yaml_file=SETTINGS_FILE, extra="forbid", frozen=True)

    router_image: str = Field("envoyproxy/envoy:distroless-v1.40.0", description="Image of the router's Envoy.")
    operator_image: str = Field(
        "ghcr.io/specfleet/specfleet:0.1.0", description="The operator's own image; router pods run `specfleet drain`."
    )
    allow_host_path: bool = Field(False, description="Whether a SpecDeployment may mount directories of the node.")
    watch_namespaces: list[str] = Field(
        default_factory=list, description="Namespaces to watch; empty is the whole cluster."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments win over the environment, the environment over the file."""
        return init_settings, env_settings, _SettingsFile(settings_cls)


def load_settings(file: Path | None) -> OperatorSettings:
    """The settings in `file` (default: the chart's, if it is there), below `SPECFLEET_*` variables.

    Raises:
        SettingsProblem: the file is missing, no YAML, or holds a key or value that is none of a setting.
    """
    path = file if file is not None else Path(SETTINGS_FILE)
    if file is not None and not file.is_file():
        raise SettingsProblem(f"expected a settings file at {file}, found none: name an existing one with --settings")

    class FromFile(OperatorSettings):
        model_config = SettingsConfigDict(yaml_file=path)

    try:
        return FromFile()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        known = ", ".join(sorted(OperatorSettings.model_fields))
        raise SettingsProblem(
            f"settings ({path} and SPECFLEET_* variables): {where}: {first['msg']}; known settings are {known}"
        ) from None
    except (SettingsError, yaml.YAMLError, OSError, TypeError, ValueError, AttributeError) as error:
        said = " ".join(str(error).split())
        raise SettingsProblem(f"settings ({path} and SPECFLEET_* variables) cannot be read: {said}") from None
