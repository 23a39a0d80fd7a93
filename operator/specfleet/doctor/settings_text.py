"""The operator's settings as the ConfigMap holds them, read as the operator would read them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from specfleet.settings import OperatorSettings, first_problem, snake_names


@dataclass(frozen=True)
class Given:
    """Settings that somebody gave. `problem`: why the operator would refuse them, in one sentence."""

    values: Mapping[str, Any] = field(default_factory=dict)
    settings: OperatorSettings | None = None
    problem: str | None = None

    @property
    def watch_namespaces(self) -> tuple[str, ...]:
        """Empty is the whole cluster. Also told where something else in the settings is wrong."""
        named = self.values.get("watch_namespaces")
        return tuple(str(name) for name in named) if isinstance(named, list) else ()


class _OnlyGiven(OperatorSettings):
    """Neither this machine's file nor its environment has a say."""

    model_config = SettingsConfigDict(yaml_file=None)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def given(text: str) -> Given:
    """The settings in a text of YAML."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return Given(problem=f"no YAML ({' '.join(str(error).split())})")
    if document is None:
        document = {}
    if not isinstance(document, dict):
        return Given(problem=f"expected names and values, found {type(document).__name__}")
    values = snake_names(document)
    try:
        return Given(values, _OnlyGiven(**values))
    except ValidationError as error:
        return Given(values, problem=first_problem(error))
