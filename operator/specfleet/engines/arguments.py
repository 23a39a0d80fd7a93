"""Reads the arguments of an engine that somebody else started: which engine, model, limits, speculation. Pure.

It takes what the engines' own parsers take, and spellings of releases that are long gone. What the engine would not
take, or what cannot be seen, is said in `problems`; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines import vllm_retired
from specfleet.engines.flags import Flag, Given, Stray, Unresolved, arity_problem
from specfleet.engines.known_flags import KnownFlags, known_flags
from specfleet.engines.launch import Launch, launch, literal_variables
from specfleet.engines.release import tag_version
from specfleet.engines.speculation import flag_name, sglang_speculation, short, vllm_speculation

VLLM_PORT = 8000
SGLANG_PORT = 30000
SGLANG_SEQUENCES = 48
"""What SGLang's `--max-running-requests` becomes under speculation where it is not given (0.5.2 to 0.5.23)."""
_API_KEY_VARIABLES = {EngineType.VLLM: "VLLM_API_KEY"}
_SECRET_FLAGS = frozenset({"api-key", "admin-api-key", "hf-token"})
_OTHER_NUMBERING = ("lmcache/",)
_PATH = "args"


@dataclass(frozen=True)
class ReadArguments:
    """What the arguments of one engine container say.

    Args:
        engine: whose arguments they are; None where neither words nor image tell.
        model: what it serves: a Hub id or a path.
        served_names: names that clients send; empty where it is the model.
        release_hint: the release by the image's tag.
        flags: main name without dashes and value (None: bare), in their order; a dotted flag is `name.member`.
        speculative: the speculative config in the engine's newest words. vLLM: the keys of `--speculative-config`.
            SGLang: its `--speculative-*` flags without that prefix, with `_`. None without speculation.
        max_sequences: requests that one pod runs at once; None where no flag says.
        figures_per_request: whether answers carry their own acceptance figures.
        metrics: whether the engine has a metrics page.
        usage_forced: whether every stream ends with usage, asked for or not.
        custom_labels: request labels that SGLang takes into its metrics.
        api_key: whether it asks for a key.
        port: TCP port of its API.
        problems: sentences about what cannot be seen or what the engine would refuse.
        shell: whether a script or program of unknown doing stands between, so that nothing can be read.
        given: the flags in detail.
        strays: words that belong to no flag.
        prefix: words before the engine's program.
        module: whether it is started as a Python module that takes the model as a flag.
    """

    engine: EngineType | None
    model: str | None = None
    served_names: tuple[str, ...] = ()
    release_hint: str | None = None
    flags: tuple[tuple[str, str | None], ...] = ()
    speculative: Mapping[str, Any] | None = None
    max_sequences: int | None = None
    figures_per_request: bool = False
    metrics: bool = True
    usage_forced: bool = False
    custom_labels: tuple[str, ...] = ()
    api_key: bool = False
    port: int = VLLM_PORT
    problems: tuple[str, ...] = ()
    shell: bool = False
    given: tuple[Given, ...] = ()
    strays: tuple[Stray, ...] = ()
    prefix: tuple[str, ...] = ()
    module: bool = False

    @property
    def draft_tokens(self) -> int | None:
        """k, the tokens drafted a round; None without speculation or where no argument says."""
        config = self.speculative or {}
        if self.engine is EngineType.SGLANG:
            drafted, steps = _whole(config.get("num_draft_tokens")), _whole(config.get("num_steps"))
            if drafted is not None and drafted > 1:
                return drafted - 1
            return steps if config.get("eagle_topk") in (None, 1) else None
        return _whole(config.get("num_speculative_tokens"))

    @property
    def mode(self) -> str | None:
        """How drafts are made, in the words of the API; None without speculation or where it cannot be told."""
        config = self.speculative or {}
        names = _SGLANG_MODES if self.engine is EngineType.SGLANG else _VLLM_MODES
        word = str(config.get("algorithm" if self.engine is EngineType.SGLANG else "method") or "")
        if self.engine is not EngineType.SGLANG and word.endswith("mtp"):
            return "MTP"
        return names.get(word.upper() if self.engine is EngineType.SGLANG else word.lower())


_VLLM_MODES = {
    "ngram": "NGram",
    "ngram_gpu": "NGram",
    "suffix": "Suffix",
    "draft_model": "DraftModel",
    "medusa": "Medusa",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "dflash": "DFlash",
}
_SGLANG_MODES = {
    "NGRAM": "NGram",
    "STANDALONE": "DraftModel",
    "EAGLE": "EAGLE",
    "EAGLE3": "EAGLE3",
    "NEXTN": "MTP",
    "DFLASH": "DFlash",
}


def read(
    argv: Sequence[str],
    engine: EngineType | None = None,
    *,
    variables: Mapping[str, str | None] | None = None,
    image: str = "",
) -> ReadArguments:
    """Reads `command` and `args` of a container, joined.

    Args:
        engine: whose they are, where that is known; what the words say wins.
        variables: the container's environment for `$(NAME)`; None as a value: it is not written in the object.
        image: the container's image, for the engine and the release where the words do not tell.
    """
    env = variables or {}
    started = launch(list(argv), env)
    kind = started.serving or engine or _engine_of_image(image) or _engine_of_words(started.words)
    version = tag_version(image) if _counts_as_engine(image) else None
    hint = str(version) if version is not None and version.major == 0 else None
    if started.foreign:
        return ReadArguments(None, problems=started.problems)
    if started.shell or kind is None:
        what = () if started.problems else ("neither the arguments nor the image tell which engine this is",)
        return ReadArguments(kind, release_hint=hint, problems=(*started.problems, *what), shell=started.shell)
    reader = _Reader(kind, started, known_flags(kind, None if hint is None else version))
    return replace(reader.result(env), release_hint=hint)


def read_container(container: Mapping[str, Any], engine: EngineType | None = None) -> ReadArguments:
    """Reads one container of a pod: its command, args, literal environment and image.

    A command that is no known engine's hides what it hands on, so that nothing is read then.
    """
    command = [str(word) for word in container.get("command") or ()]
    args = [str(word) for word in container.get("args") or ()]
    image = str(container.get("image") or "")
    variables = container_variables(container)
    found = read([*command, *args], engine, variables=variables, image=image)
    started = launch([*command, *args], variables)
    if command and started.serving is None and not started.shell and not started.foreign:
        what = f"the container runs {' '.join(command[:3])}, neither vLLM's nor SGLang's server"
        return ReadArguments(found.engine, release_hint=found.release_hint, problems=(what,), shell=True)  # noqa: S604
    return found


def container_variables(container: Mapping[str, Any]) -> dict[str, str | None]:
    """The container's environment; None for a value that is not written in the object."""
    pairs: list[tuple[str, str | None]] = []
    for variable in container.get("env") or ():
        value = None if variable.get("valueFrom") else str(variable.get("value") or "")
        pairs.append((str(variable.get("name")), value))
    return literal_variables(pairs)


def _engine_of_image(image: str) -> EngineType | None:
    name = image.split("@", 1)[0].rsplit("/", 1)[-1].split(":", 1)[0].lower()
    if "sglang" in name:
        return EngineType.SGLANG
    return EngineType.VLLM if "vllm" in name else None


def _counts_as_engine(image: str) -> bool:
    """Whether the image's tag is the engine's release: llm-d 0.2 is no vLLM 0.2, nor is LMCache's vllm-openai 0.3."""
    return _engine_of_image(image) is not None and not any(owner in image for owner in _OTHER_NUMBERING)


def _engine_of_words(words: Sequence[str]) -> EngineType | None:
    names = {word.split("=", 1)[0].lstrip("-").replace("_", "-") for word in words if word.startswith("--")}
    if names & {"model-path", "tp-size", "mem-fraction-static", "max-running-requests", "speculative-algorithm"}:
        return EngineType.SGLANG
    if names & {"model", "max-model-len", "max-num-seqs", "gpu-memory-utilization", "tensor-parallel-size"}:
        return EngineType.VLLM
    return None


@dataclass
class _Reader:
    """Reads the engine's own words, once."""

    engine: EngineType
    started: Launch
    table: KnownFlags
    problems: list[str] = field(default_factory=list)

    def result(self, variables: Mapping[str, str | None]) -> ReadArguments:
        self.problems += self.started.problems
        model, words = self._positional(self._split_words(self.started.words))
        given: list[Given] = []
        strays: list[Stray] = []
        for one in self.table.read(words, _PATH):
            if isinstance(one, Given):
                given.append(one)
            elif model is None and one.word and not self.started.module:
                model = one.word
            else:
                strays.append(one)
        self.problems += [stray.message for stray in strays]
        self.problems += [problem for one in given if (problem := self._flag_problem(one)) is not None]
        self.problems += self._unseen(given, model)
        last = {flag_name(one): one for one in given if isinstance(one.flag, Flag) and not one.member}
        found = ReadArguments(
            self.engine,
            model=self._value(last, "model-path" if self.engine is EngineType.SGLANG else "model") or model,
            served_names=self._served(last),
            flags=tuple((_shown(one), one.value) for one in given),
            given=tuple(given),
            strays=tuple(strays),
            prefix=self.started.prefix,
            module=self.started.module,
        )
        found = self._sglang(found, last) if self.engine is EngineType.SGLANG else self._vllm(found, last, given)
        key = _API_KEY_VARIABLES.get(self.engine)
        port = self._number(last, "port")
        return replace(
            found,
            api_key=bool(self._value(last, "api-key")) or (key is not None and variables.get(key, "") != ""),
            port=port if port is not None else found.port,
            problems=tuple(dict.fromkeys(self.problems)),
        )

    def _unseen(self, given: Sequence[Given], model: str | None) -> list[str]:
        """References whose value is not known; those of keys and tokens need not be."""
        texts = [one.value or "" for one in given if flag_name(one) not in _SECRET_FLAGS]
        return [
            f"$({name}) is a variable whose value is not written in the object: what it stands for cannot be seen here"
            for name in self.started.unknown
            if any(f"$({name})" in text for text in (*texts, model or ""))
        ]

    def _split_words(self, words: Sequence[str]) -> list[str]:
        """Takes `--flag value`, written as one word, apart; the engine itself would not."""
        result: list[str] = []
        for word in words:
            flag, space, value = word.partition(" ")
            if space and flag.startswith("--") and "=" not in flag and "{" not in flag and "\n" not in flag:
                self.problems.append(
                    f"{flag} and its value are one argument, which the engine does not take: write two arguments, or "
                    f"{flag}=..."
                )
                result += [flag, value.strip()]
            else:
                result.append(word)
        return result

    def _positional(self, words: list[str]) -> tuple[str | None, list[str]]:
        if words and not words[0].startswith("-") and not self.started.module:
            return words[0], words[1:]
        return None, words

    def _flag_problem(self, given: Given) -> str | None:
        whose = f"{self.engine.value} {self.table.release}"
        if given.flag is Unresolved.AMBIGUOUS:
            return f"{given.spelling} can stand for {', '.join(given.candidates[:6])}: write one in full"
        if isinstance(given.flag, Unresolved):
            return f"{whose} does not know the flag {given.spelling}"
        if not self.table.is_current(given):
            return f"{whose} does not know the flag {given.matched}: {other_releases(given.flag, self.engine)}"
        if given.matched == "--config":
            return f"--config {given.value}: flags in a file cannot be seen here"
        return arity_problem(given)

    def _served(self, last: Mapping[str, Given]) -> tuple[str, ...]:
        given = last.get("served-model-name")
        if given is None or given.value is None:
            return ()
        if self.engine is EngineType.SGLANG:
            return (given.value,)
        return given.values or (given.value,)

    def _value(self, last: Mapping[str, Given], name: str) -> str | None:
        given = last.get(name)
        return given.value if given is not None else None

    def _number(self, last: Mapping[str, Given], name: str) -> int | None:
        text = self._value(last, name)
        if text is None:
            return None
        number = _whole(text)
        if number is None:
            self.problems.append(f"--{name} needs a whole number, found {short(text)}")
        return number

    def _vllm(self, found: ReadArguments, last: Mapping[str, Given], given: Sequence[Given]) -> ReadArguments:
        figures = self._value(last, "per-request-spec-decode-metrics") in ("summary", "detailed")
        return replace(
            found,
            speculative=vllm_speculation(given, self.problems),
            max_sequences=self._number(last, "max-num-seqs"),
            figures_per_request=figures,
            metrics=not _on(last, "disable-log-stats"),
            usage_forced=_on(last, "enable-force-include-usage"),
        )

    def _sglang(self, found: ReadArguments, last: Mapping[str, Given]) -> ReadArguments:
        speculative = sglang_speculation(last)
        sequences = self._number(last, "max-running-requests")
        if sequences is None and speculative is not None:
            sequences = SGLANG_SEQUENCES
        labels = last.get("tokenizer-metrics-allowed-custom-labels")
        return replace(
            found,
            speculative=speculative,
            max_sequences=sequences,
            metrics=_on(last, "enable-metrics"),
            custom_labels=() if labels is None else labels.values or ((labels.value,) if labels.value else ()),
            port=SGLANG_PORT,
        )


def _on(last: Mapping[str, Given], name: str) -> bool:
    """Whether a switch is on."""
    return name in last and not last[name].switched_off


def other_releases(flag: Flag, engine: EngineType) -> str:
    """Which releases know a flag, and what to write for others."""
    if engine is EngineType.VLLM:
        key = vllm_retired.SPECULATIVE_KEYS.get(flag.name) or vllm_retired.SPECULATIVE_SWITCHES.get(flag.name)
        if key is not None:
            return f"newer ones than {flag.until} have {key} in --speculative-config"
    span = f"{flag.since} had it" if flag.since == flag.until else f"{flag.since} to {flag.until} had it"
    hint = vllm_retired.HINTS.get(flag.name) if engine is EngineType.VLLM else None
    return f"{span}; {hint}" if hint else span


def _shown(given: Given) -> str:
    name = given.matched.lstrip("-") if given.switched_off else flag_name(given)
    return f"{name}.{given.member}" if given.member else name


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = value if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdigit() else None
