"""Operator settings: one model, read from one file (the chart's ConfigMap) and `SPECFLEET_*` variables."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, YamlConfigSettingsSource

SETTINGS_FILE = "/etc/specfleet/settings.yaml"


class OperatorSettings(BaseSettings):
    """What the cluster's administrator decides for all SpecDeployments."""

    model_config = SettingsConfigDict(
        env_prefix="SPECFLEET_", yaml_file=SETTINGS_FILE, extra="forbid", alias_generator=None, frozen=True
    )

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
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls)
