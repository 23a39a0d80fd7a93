"""The argument parsers of released engines, asked in their own Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specfleet.api.v1alpha1 import EngineType
from tests.testbed.api import vllm_python
from tests.testbed.commands import run_logged
from tests.testbed.locks import exclusive, made_whole
from tests.testbed.paths import cache_root
from tests.testbed.progress import step
from tests.testbed.uv import ensure_uv

SGLANG = "0.5.23"
# What its argument parser imports and vLLM's environment lacks; everything else of SGLang needs a GPU build.
_BESIDE_VLLM = ("orjson==3.13.0", "ipython==9.18.1", "traitlets==5.16.1")


@dataclass(frozen=True)
class Command:
    """Words behind the engine's program, and whether that is a Python module."""

    words: tuple[str, ...]
    module: bool = False


def ensure_sglang() -> Path:
    """The folder with SGLang's released wheel, importable by vLLM's Python: torch and most others come from there."""
    folder = cache_root() / "sglang" / SGLANG
    python = vllm_python()
    with exclusive("sglang"):
        if not folder.is_dir():
            with (
                step("SGLang", f"fetch SGLang {SGLANG} for its argument parser (once a machine)"),
                made_whole(folder) as draft,
            ):
                install: list[str | Path] = [ensure_uv(), "pip", "install", "--python", python, "--target", draft]
                run_logged([*install, "--no-deps", f"sglang=={SGLANG}", *_BESIDE_VLLM], "sglang-install", nice=True)
    return folder


def ask(engine: EngineType, commands: Sequence[Command]) -> dict[str, Any]:
    """What the engine's released parser makes of commands; see `parse_arguments.py`."""
    folders = [str(ensure_sglang())] if engine is EngineType.SGLANG else []
    question = {"commands": [{"words": list(command.words), "module": command.module} for command in commands]}
    script = Path(__file__).with_name("parse_arguments.py")
    ended = subprocess.run(
        [str(vllm_python()), str(script), engine.value, *folders],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer
