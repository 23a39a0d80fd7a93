"""Tiny Llama checkpoints that recite: which token follows is known for each, and so are answers and acceptance.

Attention and MLP add nothing, so that the last hidden state is the embedding of the last token, and the output layer
has the embeddings in the order in which they follow each other. Heads are made the same way. All of it is real to an
engine: files, formats, shapes, tokenizer.
"""

from __future__ import annotations

import json
import random
import string
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Row = list[float]
Rows = list[Row]
"""A tensor of two dimensions; one of one dimension has one row."""
Follows = Callable[[str], str]

LETTERS, DIGITS = string.ascii_lowercase, string.digits
SPECIAL = ("<pad>", "<bos>", "<eos>")
POSITIONS = 1024
MEDUSA_HEADS = 4
_HIDDEN = 128
_HEAD = 64
_LAYERS = 2
_VOCABULARY = 272
"""Of the embeddings: 256 bytes and the special tokens, padded as engines like it."""
_CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def onwards(letter: str) -> str:
    """Letters and digits in their order, from the last one to the first; anything else repeats itself."""
    for ring in (LETTERS, DIGITS):
        if letter in ring:
            return ring[(ring.index(letter) + 1) % len(ring)]
    return letter


def letters_only(letter: str) -> str:
    """As `onwards`, but digits run backwards: none is ever what the target says."""
    return DIGITS[DIGITS.index(letter) - 1] if letter in DIGITS else onwards(letter)


def recited(prompt: str, count: int) -> str:
    """What the target answers: `count` letters that follow on the last one of the prompt."""
    said = ""
    for _ in range(count):
        said += onwards((prompt + said)[-1])
    return said


def target(directory: Path) -> Path:
    """A Llama that recites by `onwards`."""
    return reciter(directory, onwards)


def reciter(directory: Path, follows: Follows, tokenizer: Mapping[str, Any] | None = None) -> Path:
    """A Llama that recites by `follows`; as a draft for the target it is right wherever both agree."""
    return _write(directory, _llama(), _layers() | _ends(_output(follows)), tokenizer or byte_tokenizer())


def stranger(directory: Path) -> Path:
    """The target's shape, vocabulary and tokenizer, and weights that are random: it agrees by chance alone."""
    draw = random.Random(7)
    tensors = _layers() | _ends(_drawn(draw, _VOCABULARY, _HIDDEN, 1.0))
    layers = [name for name in tensors if "layers" in name and "norm" not in name]
    tensors |= {name: _drawn(draw, len(tensors[name]), len(tensors[name][0]), 0.05) for name in layers}
    return _write(directory, _llama(), tensors, byte_tokenizer())


def eagle(directory: Path) -> Path:
    """An EAGLE head for the target: it hands the embedding of the last token to the target's output layer."""
    own = {name: one for name, one in _layers(1).items() if "input_layernorm" not in name and "model.norm" not in name}
    tensors = {name.removeprefix("model."): one for name, one in own.items()}
    tensors["fc.weight"] = [[float(row == column) for column in range(2 * _HIDDEN)] for row in range(_HIDDEN)]
    return _write(directory, _llama() | {"num_hidden_layers": 1}, tensors)


def medusa(directory: Path) -> Path:
    """Medusa heads for the target: head n says what follows n + 2 letters after the one that the target has read."""
    tensors: dict[str, Rows] = {}
    for head in range(MEDUSA_HEADS):
        tensors[f"{head}.0.linear.weight"] = _zeros(_HIDDEN, _HIDDEN)
        tensors[f"{head}.1.weight"] = _output(_repeated(onwards, head + 2))
    config = {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": _HIDDEN,
        "vocab_size": _VOCABULARY,
        "num_heads": MEDUSA_HEADS,
        "num_hidden_layers": 1,
    }
    return _write(directory, config, tensors)


def byte_tokenizer(special: tuple[str, ...] = SPECIAL, *, swapped: str = "") -> dict[str, Any]:
    """The content of a tokenizer.json: a token a byte, and special tokens.

    Args:
        swapped: two letters whose tokens are exchanged.
    """
    vocabulary = {_sign(byte): len(SPECIAL) + byte for byte in range(256)}
    if swapped:
        vocabulary |= {swapped[0]: vocabulary[swapped[1]], swapped[1]: vocabulary[swapped[0]]}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, "special": True, **flags} for number, token in enumerate(special)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: number for number, token in enumerate(special)} | vocabulary,
            "merges": [],
        },
    }


def _sign(byte: int) -> str:
    """How byte-level tokenizers write a byte: as itself where it can be seen, else as a letter beyond Latin-1."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [one for one in range(256) if one not in seen]
    return chr(byte) if byte in seen else chr(256 + hidden.index(byte))


def _repeated(follows: Follows, times: int) -> Follows:
    def after(letter: str) -> str:
        for _ in range(times):
            letter = follows(letter)
        return letter

    return after


def _zeros(rows: int, columns: int) -> Rows:
    return [[0.0] * columns for _ in range(rows)]


def _drawn(draw: random.Random, rows: int, columns: int, deviation: float) -> Rows:
    return [[draw.gauss(0.0, deviation) for _ in range(columns)] for _ in range(rows)]


def _embeddings() -> Rows:
    """One row of +1 and -1 a token; rows of different tokens are nearly at right angles."""
    draw = random.Random(0)
    return [[draw.choice((-1.0, 1.0)) for _ in range(_HIDDEN)] for _ in range(_VOCABULARY)]


def _output(follows: Follows) -> Rows:
    """Weights of an output layer: the row of the token that follows is the embedding of the one before it."""
    embeddings, rows = _embeddings(), _embeddings()
    for letter in LETTERS + DIGITS:
        rows[len(SPECIAL) + ord(follows(letter))] = embeddings[len(SPECIAL) + ord(letter)]
    return rows


def _layers(count: int = _LAYERS) -> dict[str, Rows]:
    """Layers that add nothing, since what they would add goes through a matrix of zeros."""
    tensors: dict[str, Rows] = {}
    for number in range(count):
        shapes = {
            "self_attn.q_proj": (2 * _HEAD, _HIDDEN),
            "self_attn.k_proj": (_HEAD, _HIDDEN),
            "self_attn.v_proj": (_HEAD, _HIDDEN),
            "self_attn.o_proj": (_HIDDEN, 2 * _HEAD),
            "mlp.gate_proj": (_HIDDEN, _HIDDEN),
            "mlp.up_proj": (_HIDDEN, _HIDDEN),
            "mlp.down_proj": (_HIDDEN, _HIDDEN),
        }
        layer = f"model.layers.{number}"
        tensors |= {f"{layer}.{name}.weight": _zeros(*shape) for name, shape in shapes.items()}
        tensors |= {f"{layer}.{name}_layernorm.weight": [[1.0] * _HIDDEN] for name in ("input", "post_attention")}
    return tensors | {"model.norm.weight": [[1.0] * _HIDDEN]}


def _ends(output: Rows) -> dict[str, Rows]:
    return {"model.embed_tokens.weight": _embeddings(), "lm_head.weight": output}


def _llama() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": _HIDDEN,
        "intermediate_size": _HIDDEN,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": _HEAD,
        "num_hidden_layers": _LAYERS,
        "vocab_size": _VOCABULARY,
        "max_position_embeddings": POSITIONS,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _write(
    directory: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Rows],
    tokenizer: Mapping[str, Any] | None = None,
) -> Path:
    """The files of a checkpoint, readable by any user: a preflight runs as none of this machine's."""
    directory.mkdir(parents=True)
    directory.chmod(0o755)
    files: dict[str, Any] = {"config.json": config}
    if tokenizer is not None:
        names = {f"{name}_token": f"<{name}>" for name in ("pad", "bos", "eos")}
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": _CHAT_TEMPLATE, **names}
        files |= {"tokenizer.json": tokenizer, "tokenizer_config.json": settings}
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content))
    (directory / "model.safetensors").write_bytes(_safetensors(tensors))
    return directory


def _safetensors(tensors: Mapping[str, Rows]) -> bytes:
    """As bf16, which is the upper half of a 32-bit float."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, rows in tensors.items():
        begun = len(data)
        for row in rows:
            wide = struct.pack(f"<{len(row)}f", *row)
            data += b"".join(wide[at + 2 : at + 4] for at in range(0, len(wide), 4))
        shape = [len(rows), len(rows[0])] if len(rows) > 1 else [len(rows[0])]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begun, len(data)]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)
