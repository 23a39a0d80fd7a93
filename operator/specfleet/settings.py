"""Operator settings: one model, read from one file (the chart's ConfigMap) and `SPECFLEET_*` variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    YamlConfigSettingsSource,
)

SETTINGS_FILE = "/etc/specfleet/settings.yaml"
_INNER_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")


def _text(pattern: str, expected: str) -> AfterValidator:
    """A text of a form that is told in words: a pattern says little to whoever wrote it wrong."""

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(f"expected {expected}")
        return text

    return AfterValidator(check)


def _switch(value: object) -> object:
    if value not in ("auto", True, False) and value not in ("true", "false"):
        raise ValueError("expected auto, true or false")
    return value if value in ("auto", True, False) else value == "true"


EngineName = Literal["vLLM", "SGLang", "TensorRTLLM"]
_NAME = r"[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?"
Quantity = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value),
    _text(r"[0-9]{1,15}(\.[0-9]{1,9})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?", "a quantity such as 250m, 2 or 128Mi"),
]
LabelKey = Annotated[str, _text(rf"([a-z0-9.-]{{1,253}}/)?{_NAME}", "the key of a label")]
LabelValue = Annotated[str, _text(rf"({_NAME})?", "the value of a label")]
Repository = Annotated[
    str,
    _text(
        r"[a-z0-9]+([._-][a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*",
        "a repository without a tag, such as registry.example.com/vllm/vllm-openai",
    ),
]
BaseUrl = Annotated[
    str,
    _text(
        r"https?://[^\s/@?#]+(/[^\s?#]*)?",
        "a base URL such as http://prometheus.monitoring:9090, without credentials and without a query",
    ),
]


class SettingsProblem(ValueError):
    """The settings cannot be used; the message is one sentence for whoever wrote them."""


class _Part(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PrometheusSettings(_Part):
    """The Prometheus of SpecDeployments with `metrics: {source: Prometheus}`."""

    url: BaseUrl | None = Field(
        None, description="Base URL, such as http://prometheus.monitoring:9090, of SpecDeployments that name none."
    )
    bearer_token_file: Path | None = Field(None, description="File with a bearer token for `url`, read anew each time.")
    username_file: Path | None = Field(None, description="File with the name for basic authentication at `url`.")
    password_file: Path | None = Field(None, description="File with the password for basic authentication at `url`.")
    ca_file: Path | None = Field(
        None, description="File with the certificates (PEM) to trust at `url`, instead of the usual authorities."
    )
    timeout_seconds: float = Field(10.0, ge=1, le=60, description="Seconds that one query may take in all.")
    answer_mebibytes: int = Field(
        16, ge=1, le=256, description="Size that one answer may have, unpacked; 100 SpecDeployments take 2."
    )
    allow_url_in_resources: bool = Field(
        True,
        description="Whether a SpecDeployment may name a Prometheus of its own. The operator then sends queries, "
        "without credentials, to an address that somebody else wrote.",
    )

    @model_validator(mode="after")
    def _whole(self) -> PrometheusSettings:
        if self.bearer_token_file is not None and (self.username_file or self.password_file) is not None:
            raise ValueError("bearer_token_file and username_file, password_file exclude each other: write one of them")
        if (self.username_file is None) != (self.password_file is None):
            raise ValueError("basic authentication needs both username_file and password_file")
        if self.url is None and self.files():
            raise ValueError(f"{next(iter(self.files()))} is for the server at url: write url too")
        return self

    def files(self) -> dict[str, Path]:
        """The files that are named, by setting."""
        found = {name: getattr(self, name) for name in type(self).model_fields if name.endswith("_file")}
        return {name: file for name, file in found.items() if file is not None}


class PodMonitorSettings(_Part):
    """The PodMonitor of each SpecDeployment's routers, for the Prometheus operator."""

    enabled: Annotated[Literal["auto"] | bool, BeforeValidator(_switch)] = Field(
        "auto",
        description="auto: where the cluster has the kind. true: always, and its absence is an error. false: never.",
    )
    interval_seconds: int = Field(
        30, ge=1, le=300, description="Scrape interval; half a block where that is less and the source is Prometheus."
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="Labels by which a Prometheus selects it, such as {release: monitoring}."
    )


class Resources(_Part):
    """Requests and limits of a container."""

    requests: dict[Literal["cpu", "memory", "ephemeral-storage"], Quantity] = Field(default_factory=dict)
    limits: dict[Literal["cpu", "memory", "ephemeral-storage"], Quantity] = Field(default_factory=dict)

    def manifest(self) -> dict[str, dict[str, str]]:
        """`resources` of a container."""
        both = (("requests", self.requests), ("limits", self.limits))
        return {name: {str(key): value for key, value in given.items()} for name, given in both if given}


class RouterSettings(_Part):
    """The routers of every SpecDeployment."""

    replicas: int = Field(
        2, ge=1, le=20, description="Router pods of a SpecDeployment; with 1, a lost node is an outage."
    )
    resources: Resources = Field(
        Resources(requests={"cpu": "250m", "memory": "128Mi"}, limits={"memory": "2Gi"}),
        description="Requests and limits of the Envoy container. A change rolls all routers.",
    )


class _SettingsFile(YamlConfigSettingsSource):
    """Takes `allowHostPath` and `allow_host_path` alike."""

    def __call__(self) -> dict[str, Any]:
        return snake_names(super().__call__())


class OperatorSettings(BaseSettings):
    """What the cluster's administrator decides for all SpecDeployments."""

    model_config = SettingsConfigDict(
        env_prefix="SPECFLEET_", env_nested_delimiter="__", yaml_file=SETTINGS_FILE, extra="forbid", frozen=True
    )

    router_image: str = Field("envoyproxy/envoy:distroless-v1.40.0", description="Image of the router's Envoy.")
    operator_image: str = Field(
        "ghcr.io/specfleet/specfleet:0.1.0", description="The operator's own image; router pods run `specfleet drain`."
    )
    engine_images: dict[EngineName, Repository] = Field(
        default_factory=dict,
        description="Repository, by engine, of SpecDeployments that name no image, such as "
        "{vLLM: registry.example.com/vllm/vllm-openai}; the tag is that of the public image: v and engine.version, of "
        "TensorRT-LLM without the v. Default: the public one.",
    )
    watch_namespaces: list[str] = Field(
        default_factory=list, description="Namespaces to watch; empty is the whole cluster."
    )
    allow_host_path: bool = Field(False, description="Whether a SpecDeployment may mount directories of the node.")
    allow_host_namespaces: bool = Field(
        False, description="Whether pools.template may ask for the host's network, processes, IPC or ports."
    )
    allow_privileged: bool = Field(
        False,
        description="Whether pools.template may ask for privileged containers, more capabilities, privilege "
        "escalation or unconfined profiles.",
    )
    allow_service_accounts: bool = Field(
        False, description="Whether pools.template may name another service account, or mount a token of one."
    )
    preflight_seconds: Annotated[int, Field(ge=1, le=86400)] = Field(
        600, description="How long a preflight may take; without a verdict by then the speculative pool is made."
    )
    router: RouterSettings = Field(RouterSettings(), description="The routers.")
    prometheus: PrometheusSettings = Field(PrometheusSettings(), description="The source Prometheus.")
    pod_monitor: PodMonitorSettings = Field(PodMonitorSettings(), description="The routers' PodMonitor.")

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

    def missing_files(self) -> Iterator[str]:
        """What is wrong with the files that settings name, one sentence each; only where the operator runs."""
        for name, file in self.prometheus.files().items():
            try:
                file.read_bytes()
            except OSError as error:
                yield f"prometheus.{name}: expected a file at {file} that can be read, found: {error.strerror}"


def snake_names(document: Mapping[str, Any], model: type[BaseModel] = OperatorSettings) -> dict[str, Any]:
    """A document with the names of settings as the model has them, whichever way they are written; maps stay."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        name = _INNER_CAPITAL.sub(r"_\1", str(key)).lower()
        inner = _part(model, name)
        found[name] = snake_names(value, inner) if inner is not None and isinstance(value, Mapping) else value
    return found


def _part(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The model of a group of settings; None for a single one."""
    field = model.model_fields.get(name)
    kind = field.annotation if field is not None else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


class Row(NamedTuple):
    """One setting for a table: its name as in the file, and texts of type, default and meaning."""

    name: str
    type: str
    default: str
    meaning: str


def rows(model: type[BaseModel] = OperatorSettings, prefix: str = "") -> Iterator[Row]:
    """All settings in the order of the model, groups opened."""
    for name, field in model.model_fields.items():
        place = f"{prefix}{to_camel(name)}"
        inner = _part(model, name)
        if inner is not None and inner is not Resources:
            yield from rows(inner, f"{place}.")
            continue
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            default = default.model_dump(exclude_defaults=True)
        yield Row(place, _type_text(field.annotation), _default_text(default), field.description or "")


def _type_text(annotation: Any) -> str:
    if annotation is Resources:
        return "requests and limits: cpu, memory, ephemeral-storage"
    plain = {bool: "true or false", int: "integer", float: "number", str: "text", Path: "file"}
    if annotation in plain:
        return plain[annotation]
    kind, arguments = get_origin(annotation), [one for one in get_args(annotation) if one is not type(None)]
    if kind is list:
        return f"list of {_type_text(arguments[0])}s"
    if kind is dict:
        return "map of texts"
    if kind is Annotated:
        return _type_text(arguments[0])
    if kind is Literal:
        return " or ".join(f"`{one}`" for one in arguments)
    return ", ".join(_type_text(one) for one in arguments)


def _default_text(default: Any) -> str:
    if default is None:
        return ""
    text = json.dumps(default).replace('"', "") if not isinstance(default, str) else default
    return f"`{text}`"


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
        raise SettingsProblem(f"settings ({path} and SPECFLEET_* variables): {first_problem(error)}") from None
    except (SettingsError, yaml.YAMLError, OSError, TypeError, ValueError, AttributeError) as error:
        said = " ".join(str(error).split())
        raise SettingsProblem(f"settings ({path} and SPECFLEET_* variables) cannot be read: {said}") from None


def first_problem(error: ValidationError) -> str:
    """The first thing that is wrong: which setting, what is expected, and what there is to choose from."""
    first = error.errors(include_url=False)[0]
    place = [str(part) for part in first["loc"] if part != "[key]"]
    model: type[BaseModel] = OperatorSettings
    for part in place[:-1]:
        model = _part(model, part) or model
    said = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        prefix = ".".join([*place[:-1], ""])
        known = ", ".join(f"{prefix}{name}" for name in sorted(model.model_fields))
        return f"{'.'.join(place)} is no setting; known settings are {known}"
    found = f", found {first['input']!r:.80}" if isinstance(first["input"], str | int | float | bool) else ""
    return f"{'.'.join(place)}: {said}{found}"
