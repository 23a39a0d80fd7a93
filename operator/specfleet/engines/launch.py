"""Finds the engine's own arguments in what a container runs. Pure.

A container's words are a program with arguments, arguments of the image's entrypoint, or a script for a shell.
Kubernetes replaces `$(NAME)` before anything runs; a shell script is taken only where it is one plain command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from specfleet.api.v1alpha1 import EngineType

_REFERENCE = re.compile(r"\$\$|\$\((?P<name>[^()\s]+)\)")
_SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh"})
_SCRIPT_FLAG = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*")
_SET_OPTIONS = re.compile(r"[-+][a-zA-Z]+|pipefail|errexit|nounset|xtrace")
_OPAQUE = re.compile(r".*\.(sh|py|bash)|python[0-9.]*|" + "|".join(sorted(_SHELLS)))
_OPERATORS = {
    "|": "a pipe (|)",
    "&": "&",
    "<": "a redirection (<)",
    ">": "a redirection (>)",
    "(": "a subshell ( )",
    ")": "a subshell ( )",
    "{": "braces { } outside of quotes",
    "}": "braces { } outside of quotes",
}
_COMPOUND = frozenset({"if", "for", "while", "until", "case", "function", "select", "then", "do", "else"})


MODULES: dict[str, EngineType] = {
    "vllm.entrypoints.openai.api_server": EngineType.VLLM,
    "sglang.launch_server": EngineType.SGLANG,
}
CLI_MODULES: dict[str, EngineType] = {
    "vllm.entrypoints.cli.main": EngineType.VLLM,
    "sglang.cli.main": EngineType.SGLANG,
}
PROGRAMS: dict[str, EngineType] = {"vllm": EngineType.VLLM, "sglang": EngineType.SGLANG}
NOT_ENGINES: dict[str, str] = {
    "vllm.entrypoints.api_server": "vLLM's demonstration server, which has no OpenAI API",
    "vllm.entrypoints.grpc_server": "vLLM's gRPC server",
    "sglang_router.launch_router": "SGLang's router",
    "sglang_router.launch_server": "SGLang's router together with its engines",
    "trtllm-serve": "TensorRT-LLM",
    "text-generation-launcher": "text-generation-inference",
    "llama-server": "llama.cpp",
    "tritonserver": "Triton",
}


@dataclass(frozen=True)
class Launch:
    """What a container's words start.

    Args:
        serving: the engine whose program was found; None where the words name none.
        words: the engine's own arguments, `$(NAME)` replaced where the value is known.
        prefix: words before the engine's program, such as `env` or `numactl --membind=0`.
        module: whether it is started as a Python module that takes the model as a flag.
        shell: whether a script that cannot be read stands between.
        foreign: whether it is another server than the two.
        unknown: names in `$(NAME)` whose value is not written in the object.
        problems: sentences about what could not be read.
    """

    serving: EngineType | None
    words: tuple[str, ...]
    prefix: tuple[str, ...] = ()
    module: bool = False
    shell: bool = False
    foreign: bool = False
    unknown: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass
class _Expansion:
    """Replaces `$(NAME)` as Kubernetes does, and notes the names whose value is not known."""

    variables: Mapping[str, str | None]
    unknown: dict[str, None] = field(default_factory=dict)

    def of(self, text: str) -> str:
        return _REFERENCE.sub(self._one, text)

    def _one(self, match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "$"
        value = self.variables.get(name)
        if value is None:
            if name in self.variables:
                self.unknown[name] = None
            return match[0]
        return value


def literal_variables(variables: Sequence[tuple[str, str | None]]) -> dict[str, str | None]:
    """Variables in order, `$(NAME)` in a value replaced by an earlier one; None: the value is not in the object."""
    known: dict[str, str | None] = {}
    for name, value in variables:
        expansion = _Expansion(known)
        text = None if value is None else expansion.of(value)
        known[name] = None if expansion.unknown else text
    return known


def launch(argv: Sequence[str], variables: Mapping[str, str | None]) -> Launch:
    """What the words of a container start, after Kubernetes and a plain shell script."""
    expansion = _Expansion(variables)
    words = [expansion.of(word) for word in argv]
    unknown = tuple(expansion.unknown)
    script = _script(words)
    if script is not None:
        commands, problem = plain_commands(script)
        if problem is None and len(commands) != 1:
            what = "no command" if not commands else f"{len(commands)} commands"
            problem = f"the shell script runs {what}, expected the engine's one command"
        if problem is not None:
            advice = "write the engine's command line without a shell, as command and args of the container"
            return Launch(None, (), shell=True, unknown=unknown, problems=(f"{problem}: {advice}",))  # noqa: S604
        words = commands[0]
    return replace(_found(words, scripted=script is not None), unknown=unknown)


def _script(words: Sequence[str]) -> str | None:
    """The text behind `-c` of a shell; None where the words start no shell with a script."""
    for index, word in enumerate(words[:3]):
        if word.rsplit("/", 1)[-1] in _SHELLS:
            for place in range(index + 1, len(words) - 1):
                if _SCRIPT_FLAG.fullmatch(words[place]):
                    return words[place + 1]
                if not words[place].startswith("-") and words[place] not in ("pipefail",):
                    return None
    return None


def _found(words: list[str], *, scripted: bool) -> Launch:
    for index, word in enumerate(words):
        name = word.rsplit("/", 1)[-1]
        after = words[index + 1] if index + 1 < len(words) else ""
        if (index == 0 or words[index - 1] == "-m") and name in NOT_ENGINES:
            what = f"the container runs {NOT_ENGINES[name]} ({name}), neither vLLM's nor SGLang's OpenAI server"
            return Launch(None, (), foreign=True, problems=(what,))
        if word == "-m" and after in MODULES:
            return Launch(MODULES[after], tuple(words[index + 2 :]), _prefix(words[:index]), True)
        if word == "-m" and after in CLI_MODULES and words[index + 2 : index + 3] == ["serve"]:
            return Launch(CLI_MODULES[after], tuple(words[index + 3 :]), _prefix(words[:index]))
        if name in PROGRAMS and after == "serve":
            return Launch(PROGRAMS[name], tuple(words[index + 2 :]), _prefix(words[:index], name))
    first = words[0].rsplit("/", 1)[-1] if words else ""
    if scripted or (first and _OPAQUE.fullmatch(first)):
        what = f"the container runs {shlex.join(words[:2])}, which is neither vLLM's nor SGLang's server"
        return Launch(None, (), shell=True, problems=(f"{what}: what it hands on cannot be seen",))  # noqa: S604
    return Launch(None, tuple(words[1:] if words[:1] == ["serve"] else words))


def _prefix(words: Sequence[str], program: str = "") -> tuple[str, ...]:
    """Words before the program, without the interpreter that runs a module and what changes nothing."""
    kept = list(words)
    if not program:
        while kept and kept[-1].startswith("-"):
            kept.pop()
        if kept and re.fullmatch(r"python[0-9.]*", kept[-1].rsplit("/", 1)[-1]):
            kept.pop()
    elif kept and re.fullmatch(r"python[0-9.]*", kept[-1].rsplit("/", 1)[-1]):
        kept.pop()
    return tuple(word for word in kept if word != "exec")


def plain_commands(script: str) -> tuple[list[list[str]], str | None]:
    """The commands of a script that needs no shell, each as words; or what a shell would have to do.

    Comments, line continuations, `exec` and `set -e` and the like are passed over.
    """
    lines: list[str] = [""]
    quote = ""
    index = 0
    while index < len(script):
        letter = script[index]
        following = script[index + 1 : index + 2]
        if letter == "\\" and quote != "'":
            if quote and following in ("$", "`"):
                lines[-1] += following  # shlex would keep the backslash, a shell does not
            elif following != "\n":
                lines[-1] += letter + following
            index += 2
            continue
        if letter in ("$", "`") and quote != "'" and (letter == "`" or re.match(r"[A-Za-z0-9_{(@*#?!$-]", following)):
            name = script[index : index + 24].split()[0]
            return [], f"the shell script holds a variable or a substitution ({name})"
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (not lines[-1] or lines[-1][-1].isspace()):
            end = script.find("\n", index)
            index = end if end >= 0 else len(script)
            continue
        elif letter in ";\n":
            lines.append("")
            index += 1
            continue
        elif letter in _OPERATORS:
            return [], f"the shell script holds {'&&' if script.startswith('&&', index) else _OPERATORS[letter]}"
        elif letter == "~" and (not lines[-1] or lines[-1][-1].isspace()):
            return [], "the shell script holds a home directory (~)"
        lines[-1] += letter
        index += 1
    if quote:
        return [], f"the shell script has a quote ({quote}) that does not end"
    return _commands(lines)


def _commands(lines: Sequence[str]) -> tuple[list[list[str]], str | None]:
    commands = []
    for line in lines:
        words = shlex.split(line)
        if not words or (words[0] == "set" and all(_SET_OPTIONS.fullmatch(word) for word in words[1:])):
            continue
        if words[0] in _COMPOUND:
            return [], f"the shell script holds {words[0]!r}"
        commands.append(words[1:] if words[0] == "exec" else words)
    return commands, None
