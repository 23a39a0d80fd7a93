"""Asks vLLM's own code. Runs in a Python that has vLLM, not in ours: `PYTHON read_vllm_parser.py < question.json`.

The question is `{"commands": [[argument, ...], ...], "configs": [{"config": speculative config}, ...]}`; the answer, on
standard output, has vLLM's version, its flags, and for each command and config what came of it.
"""

import argparse
import contextlib
import dataclasses
import io
import json
import sys
from types import SimpleNamespace
from typing import Any

with contextlib.redirect_stdout(sys.stderr):
    import vllm  # type: ignore[import-not-found]
    from vllm.config import (  # type: ignore[import-not-found]
        ModelConfig,
        ParallelConfig,
        SpeculativeConfig,
        speculative,
    )
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found]

    try:
        from vllm.entrypoints.launchers.cli_args import make_arg_parser  # type: ignore[import-not-found]
    except ModuleNotFoundError:  # 0.33 has it elsewhere
        from vllm.entrypoints.common.cli_args import make_arg_parser  # type: ignore[import-not-found]


Answer = dict[str, Any]


def flags(parser: argparse.ArgumentParser) -> list[tuple[list[str], str]]:
    """Spellings and arity of every flag, with spellings that are hidden from the help but taken."""
    arity = {"None": "one", "0": "none", "+": "many", "*": "many", "?": "optional"}
    taken: dict[int, list[str]] = {}
    for spelling, action in parser._option_string_actions.items():
        taken.setdefault(id(action), []).append(spelling)
    return [
        (list(dict.fromkeys([*action.option_strings, *taken[id(action)]])), arity[str(action.nargs)])
        for action in parser._actions
        if action.option_strings
    ]


def parsed(arguments: list[str]) -> Answer:
    """What `vllm serve` makes of its arguments, or its error."""
    parser = make_arg_parser(FlexibleArgumentParser())
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            namespace = parser.parse_args(arguments)
    except SystemExit:
        return {"error": said.getvalue()}
    except Exception as problem:
        return {"error": f"{type(problem).__name__}: {problem}"}
    return {"values": {name: value if _plain(value) else str(value) for name, value in vars(namespace).items()}}


def _plain(value: object) -> bool:
    return isinstance(value, (str, int, float, bool, list, dict, type(None)))


def configured(question: dict[str, Any]) -> Answer:
    """Whether the release's SpeculativeConfig takes these keys and values.

    Args:
        question: `config`, and where it is about drafts with files: `target`, a folder with a config.json, the
            `tensor` parallelism, and `packaged`: whether to take packages that a mode needs as there.
    """
    if "target" in question:
        path = question["target"]
        model = ModelConfig(model=path, tokenizer=path, max_model_len=4096)
    else:
        # n-gram drafts take the target's own configuration, which needs no files for these checks.
        model = SimpleNamespace(max_model_len=8192, verify_with_parallel_config=lambda _: None)
    speculative.has_arctic_inference = lambda: question.get("packaged", False)
    try:
        found = SpeculativeConfig(
            **question["config"],
            target_model_config=model,
            target_parallel_config=ParallelConfig(tensor_parallel_size=question.get("tensor", 1)),
        )
    except Exception as problem:
        return {"error": f"{type(problem).__name__}: {problem}"}
    return {"method": found.method, "tokens": found.num_speculative_tokens, "revision": found.revision}


def main() -> None:
    """Answers one question."""
    question = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        answer = {
            "version": vllm.__version__,
            "flags": flags(make_arg_parser(FlexibleArgumentParser())),
            "keys": [field.name for field in dataclasses.fields(SpeculativeConfig) if field.init],
            "commands": [parsed(command) for command in question["commands"]],
            "configs": [configured(config) for config in question["configs"]],
        }
    json.dump(answer, sys.stdout, default=str)


main()
