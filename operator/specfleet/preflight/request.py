"""What a preflight is asked: two models, and how the engine is to use them. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from packaging.version import Version

from specfleet.api.models import Source
from specfleet.api.v1alpha1 import DraftMode, EngineType, SpecDeployment, SpecDeploymentSpec
from specfleet.engines.release import Minor, parse_version, tag_version
from specfleet.sizing.answer import Question, known_memory, question
from specfleet.sizing.drafts import WITHOUT_CHECKPOINT
from specfleet.sizing.started import ONE_GROUP, PLANNED_ENGINES

REQUEST_VARIABLE = "SPECFLEET_PREFLIGHT"
CACHE_VARIABLE = "SPECFLEET_PREFLIGHT_CACHE"
"""Variables of the Job's container."""
_LENGTH_FLAGS = {EngineType.VLLM: "max-model-len"}
_OTHER_LENGTH_FLAGS = ("context-length", "max_seq_len")
_FIRST_RUNNER, _SECOND = Minor(0, 15), Minor(0, 31)
"""Releases from which vLLM drafts with a model on either runner."""
_UNITS = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3, "": 1}


@dataclass(frozen=True)
class ModelRef:
    """A model: an absolute path, or owner/name on the Hub with a revision (None is the Hub's default).

    Attributes:
        volume: what is mounted at the path, in words that differ for different volumes; None for the Hub, and where the
            path is all that is known.
    """

    model: str
    revision: str | None = None
    volume: str | None = None

    @property
    def on_hub(self) -> bool:
        """Whether it is no path."""
        return not self.model.startswith("/")


@dataclass(frozen=True)
class PreflightRequest:
    """Everything that a verdict depends on, beside the files.

    Attributes:
        release: of the engine, such as `0.32.0`.
        tokens: drafted a round, k.
        served_tokens: the longest sequence that is served; None: what the target's config.json says.
        draft: None where the heads are in the target.
        heterogeneous_vocab: the engine maps tokens of another vocabulary.
        one_cache_group: the engine drafts only from a model whose layers all share their KV blocks.
        room: whether both fit an accelerator; None where it is not known which they get.
    """

    engine: EngineType
    release: str
    mode: DraftMode
    tokens: int
    served_tokens: int | None
    target: ModelRef
    draft: ModelRef | None
    heterogeneous_vocab: bool = False
    room: Question | None = None
    one_cache_group: bool = False

    @property
    def minor(self) -> Minor:
        """The minor release."""
        return Minor.of(Version(self.release))

    def encode(self) -> str:
        """As JSON."""
        fields = asdict(self)
        if self.room is None:
            del fields["room"]
        if not self.one_cache_group:
            del fields["one_cache_group"]
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @property
    def key(self) -> str:
        """A short name: another for every request whose verdict can be another."""
        return hashlib.sha256(self.encode().encode()).hexdigest()[:10]


def decode_request(text: str) -> PreflightRequest:
    """From JSON. Raises ValueError: it is none."""
    try:
        found: dict[str, Any] = json.loads(text)
        refs = {name: ModelRef(**found[name]) for name in ("target", "draft") if found[name] is not None}
        return PreflightRequest(
            EngineType(found["engine"]),
            str(found["release"]),
            DraftMode(found["mode"]),
            int(found["tokens"]),
            None if found["served_tokens"] is None else int(found["served_tokens"]),
            refs["target"],
            refs.get("draft"),
            bool(found["heterogeneous_vocab"]),
            Question(**found["room"]) if found.get("room") is not None else None,
            bool(found.get("one_cache_group", False)),
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise ValueError(f"expected a preflight request as JSON: {problem}") from None


def preflight_request(deployment: SpecDeployment) -> PreflightRequest | None:
    """What is to be checked of a valid SpecDeployment; None where there is nothing: no pools of our own, no checkpoint.

    MTP without a draft model looks for the heads in the target. Where `pools.accelerator` says what the pods get, there
    is a plan to be made whatever the mode.
    """
    spec = deployment.spec
    if spec.external is not None or (spec.draft.mode in WITHOUT_CHECKPOINT and not _plan_asked(spec)):
        return None
    release = parse_version(spec.engine.version) if spec.engine.version else tag_version(spec.engine.image or "")
    if release is None:
        return None
    target, draft = spec.rendered_target, spec.draft
    return PreflightRequest(
        engine=spec.engine.type,
        release=str(release),
        mode=draft.mode,
        tokens=draft.tokens,
        served_tokens=_served_tokens(deployment),
        target=ModelRef(target.model, target.revision, _volume(target.source)),
        draft=None if draft.model is None else ModelRef(draft.model, draft.revision, _volume(draft.source)),
        heterogeneous_vocab=draft.args.get("use_heterogeneous_vocab", "").lower() == "true",
        room=_room(deployment),
        one_cache_group=_one_cache_group(deployment, release),
    )


def _one_cache_group(deployment: SpecDeployment, release: Version) -> bool:
    """vLLM's first runner says so of draft models: it drafts from 0.15 on, until 0.30 everywhere, later on CPUs."""
    spec = deployment.spec
    if spec.engine.type is not EngineType.VLLM or spec.draft.mode is not DraftMode.DRAFT_MODEL:
        return False
    words = {word.lstrip("-").replace("_", "-") for word in (*spec.engine.args, *spec.engine.extra_args)}
    on_cpu = not spec.pools.accelerator.resource
    return ONE_GROUP not in words and Minor.of(release) >= _FIRST_RUNNER and (on_cpu or Minor.of(release) < _SECOND)


def _volume(source: Source | None) -> str | None:
    """Another claim, image or directory at the same path is another model."""
    if source is None or source.hugging_face is not None:
        return None
    return source.model_dump_json(by_alias=True, exclude_none=True, exclude={"image": {"pull_policy"}})


def _plan_asked(spec: SpecDeploymentSpec) -> bool:
    said = spec.pools.accelerator
    return spec.engine.type in PLANNED_ENGINES and (said.product is not None or said.memory is not None)


def _room(deployment: SpecDeployment) -> Question | None:
    """What to ask of the KV cache: only where it is written what the pods get, and of engines that the plan knows."""
    memory = known_memory(deployment)
    if memory is None or deployment.spec.engine.type not in PLANNED_ENGINES:
        return None
    return question(deployment, memory)


def _served_tokens(deployment: SpecDeployment) -> int | None:
    """The length flag of the engine, as the last that is given wins; extraArgs come after args."""
    engine = deployment.spec.engine
    names = [_LENGTH_FLAGS[engine.type]] if engine.type in _LENGTH_FLAGS else list(_OTHER_LENGTH_FLAGS)
    names += [name.replace("-", "_") for name in names]
    found: str | None = None
    for name, value in engine.args.items():
        if name in names:
            found = value
    words = engine.extra_args
    for index, word in enumerate(words):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("--") and name in names:
            found = value if equals else words[index + 1] if index + 1 < len(words) else None
    return _length(found)


def _length(text: str | None) -> int | None:
    """`32768`, `32k` (thousands) or `32K` (1,024s); None for `auto`, -1 and what is none."""
    match = re.fullmatch(r"([0-9]{1,9})(\.[0-9]{1,3})?([kmgKMG]?)", text or "")
    if match is None:
        return None
    return int(float(match[1] + (match[2] or "")) * _UNITS[match[3]]) or None
