"""Asks an engine's own argument parser: `PYTHON parse_arguments.py vLLM < question.json`, or `SGLang` and its folders.

Runs in a Python that has the engine, not in ours. The question is `{"commands": [{"words": [...], "module": bool}]}`;
the answer has the engine's version, its flags, the destination of each spelling, the defaults, and for each command
what came of it.
"""

import argparse
import contextlib
import importlib.metadata
import io
import json
import sys
from collections.abc import Callable
from typing import Any

Answer = dict[str, Any]
ARITY = {"None": "one", "0": "none", "+": "many", "*": "many", "?": "optional"}


def vllm_parsers() -> tuple[str, Callable[[], argparse.ArgumentParser], Callable[[], argparse.ArgumentParser]]:
    """Version, and what makes the parser of the API server's module and that of `vllm serve`."""
    import vllm  # type: ignore[import-not-found]
    from vllm.entrypoints.launchers.cli_args import make_arg_parser  # type: ignore[import-not-found]
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # type: ignore[import-not-found]

    def module() -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = make_arg_parser(FlexibleArgumentParser())
        return parser

    def serve() -> argparse.ArgumentParser:
        # As vLLM's own command line nests it; only so it moves --model in front.
        parser: argparse.ArgumentParser = FlexibleArgumentParser()
        make_arg_parser(parser.add_subparsers(dest="subparser").add_parser("serve"))
        return parser

    return vllm.__version__, module, serve


def sglang_parsers() -> tuple[str, Callable[[], argparse.ArgumentParser], Callable[[], argparse.ArgumentParser]]:
    """Version, and twice what makes its parser: `sglang serve` only puts --model-path before a bare model."""
    from sglang.srt.server_args import ServerArgs  # type: ignore[import-not-found]

    def parser() -> argparse.ArgumentParser:
        made = argparse.ArgumentParser()
        ServerArgs.add_cli_args(made)
        return made

    return importlib.metadata.version("sglang"), parser, parser


def parsed(parser: argparse.ArgumentParser, words: list[str]) -> Answer:
    """The values, or what the parser says."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            namespace = parser.parse_args(words)
    except SystemExit:
        return {"error": said.getvalue()}
    except Exception as problem:
        return {"error": f"{type(problem).__name__}: {problem}"}
    return {"values": {name: value if _plain(value) else str(value) for name, value in vars(namespace).items()}}


def _plain(value: object) -> bool:
    return isinstance(value, (str, int, float, bool, list, dict, type(None)))


def main() -> None:
    """Answers one question."""
    engine, *folders = sys.argv[1:]
    sys.path[:0] = folders
    question = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        version, module, serve = vllm_parsers() if engine == "vLLM" else sglang_parsers()
        first = ["serve"] if engine == "vLLM" else []
        options = [action for action in module()._actions if action.option_strings]
        answer = {
            "version": version,
            "flags": [(list(option.option_strings), ARITY[str(option.nargs)]) for option in options],
            "destinations": {spelling: option.dest for option in options for spelling in option.option_strings},
            "defaults": {option.dest: option.default for option in options},
            "commands": [
                parsed(module(), command["words"])
                if command["module"]
                else parsed(serve(), [*first, *command["words"]])
                for command in question["commands"]
            ],
        }
    json.dump(answer, sys.stdout, default=str)


main()
