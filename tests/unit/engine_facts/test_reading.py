"""The reader of released wheels, on a wheel that is served from this machine."""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.version import Version

from specfleet.engines.facts import WheelSource, parse_facts
from tools.engine_facts import sglang, vllm
from tools.engine_facts.tables import by_release, differences, table_text
from tools.engine_facts.wheels import BLOCK_BYTES, NoWheel, Sources, Wheel, find

ARG_UTILS = """
class EngineArgs:
    @staticmethod
    def add_cli_args(parser):
        model_kwargs = get_kwargs(ModelConfig)
        group = parser.add_argument_group(title="ModelConfig")
        group.add_argument("--model", **model_kwargs["model"])
        group.add_argument("--quantization", "-q", **model_kwargs["quantization"])
        group.add_argument("--enable-sleep-mode", **{**model_kwargs["enable_sleep_mode"], "default": None})
        group.add_argument("--hf-token", **model_kwargs["hf_token"])
        group.add_argument("--headless", action="store_true")
        for arg, type in [("--old-backend", str), ("--old-fallback", bool)]:
            group.add_argument(arg, type=type, deprecated=True)
        group.add_argument("--speculative-config", "-sc", **model_kwargs["speculative_config"])
"""
CLI_ARGS = """
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")

@config
class BaseFrontendArgs:
    response_role: str = "assistant"

class FrontendArgs(BaseFrontendArgs):
    enable_log_outputs: bool = False
"""
CONFIG = """
MTPTypes = Literal["mtp", "deepseek_mtp"]
Method = Literal["ngram", "medusa", MTPTypes]

class ModelConfig:
    model: str = ""
    quantization: str | None = None
    enable_sleep_mode: bool = False
    hf_token: bool | str | None = None
    speculative_config: dict | None = None

class SpeculativeConfig:
    num_speculative_tokens: int = Field(default=None, gt=0)
    method: Method | None = None
    quantization: Optional[str] = None
    rejection_sample_method: Literal["standard", "block"] = "standard"
    target_model_config: ModelConfig = None
    hidden: int = field(init=False)

    def verify(self):
        aux_hidden_states_supported = ["llama", "qwen"]
"""
MODELS = {
    "llama.py": "class LlamaForCausalLM(\n    nn.Module, SupportsEagle3\n):\n    pass\n",
    "arcee.py": "class ArceeForCausalLM(LlamaForCausalLM):\n    pass\n\nclass Plain(nn.Module):\n    pass\n",
    "registry.py": """
_MODELS = {
    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),
    "OldArceeForCausalLM": ("arcee", "ArceeForCausalLM"),
    "PlainForCausalLM": ("arcee", "Plain"),
}
""",
}
VLLM_FILES = {
    "vllm/engine/arg_utils.py": ARG_UTILS,
    "vllm/entrypoints/openai/cli_args.py": CLI_ARGS,
    "vllm/config/speculative.py": CONFIG,
    **{f"vllm/model_executor/models/{name}": text for name, text in MODELS.items()},
    "vllm/utils/argparse_utils.py": "class EnableDisableAction:\n    _inverse_prefixes = {}\n",
}
SERVER_ARGS = """
class ServerArgs:
    speculative_algorithm: A[Optional[str], "Speculative algorithm."] = None
    speculative_draft_model_path: A[str, Arg(help="x", aliases=["--speculative-draft-model"])] = None
    tp_size: A[int, Arg(help="x", cli_name="--tensor-parallel-size", aliases=["--tp"])] = 1
    enable_metrics: A[bool, "Switch."] = False
    internal: A[int, Arg(no_cli=True)] = 1
    checksum: A[str, Arg(help="x", nargs="?")] = None

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--config", type=str)

    def alias(self):
        return "NEXTN"
"""
ALGORITHMS = "class SpeculativeAlgorithm(Enum):\n    EAGLE = auto()\n    NGRAM = auto()\n    NONE = auto()\n"


class _Ranges(BaseHTTPRequestHandler):
    """Answers range requests for one file, as package indices do."""

    content = b""
    ranges = True

    def do_GET(self) -> None:
        first, last = (int(part) for part in self.headers["Range"].removeprefix("bytes=").split("-"))
        part = self.content[first : last + 1] if self.ranges else self.content
        self.send_response(206 if self.ranges else 200)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output clean."""


QUANTIZATION = """
BASE_QUANTIZATION_METHODS: Dict[str, Type] = {"fp8": Fp8Config}
if is_cuda():
    BASE_QUANTIZATION_METHODS.update({"mxfp4": Mxfp4Config})
VLLM_QUANTIZATION_METHODS = {"aqlm": AQLMConfig}
QUANTIZATION_METHODS = {**BASE_QUANTIZATION_METHODS, **VLLM_QUANTIZATION_METHODS}
"""


def wheel_of(tmp_path: Path, texts: dict[str, str]) -> bytes:
    """A wheel with these files behind a library of several blocks that nobody needs."""
    path = tmp_path / "made.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("vllm/_C.so", b"\0" * (5 * BLOCK_BYTES))
        for name, text in texts.items():
            archive.writestr(name, text)
    return path.read_bytes()


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """On a free port of loopback."""
    _Ranges.ranges = True
    running = ThreadingHTTPServer(("127.0.0.1", 0), _Ranges)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def sources(server: ThreadingHTTPServer, content: bytes) -> Sources:
    """The wheel as the server has it."""
    _Ranges.content = content
    url = f"http://127.0.0.1:{server.server_port}/x/made-1.0-py3-none-any.whl"
    return Sources(Wheel(url, hashlib.sha256(content).hexdigest(), len(content)))


def test_vllm_is_read_from_its_source(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    facts = vllm.read(sources(server, wheel_of(tmp_path, VLLM_FILES)))

    assert facts["flags"] == {
        ("--model", "value"),
        ("--quantization -q", "value"),
        ("--enable-sleep-mode --no-enable-sleep-mode --disable-sleep-mode", "switch"),
        ("--hf-token", "optional"),
        ("--headless", "switch"),
        ("--old-backend", "value"),
        ("--old-fallback", "value"),
        ("--speculative-config -sc", "value"),
        ("--response-role", "value"),
        ("--enable-log-outputs --no-enable-log-outputs --disable-log-outputs", "switch"),
    }
    assert facts["keys"] == {
        ("num_speculative_tokens", "int"),
        ("method", "Method | None"),
        ("quantization", "str | None"),
        ("rejection_sample_method", "Literal['standard', 'block']"),
    }
    assert facts["methods"] == {("ngram", ""), ("medusa", ""), ("mtp", ""), ("deepseek_mtp", "")}
    assert facts["choices"] == {("rejection_sample_method", "standard"), ("rejection_sample_method", "block")}
    assert facts["eagle3Targets"] == {("llama", ""), ("qwen", "")}
    assert facts["eagle3Models"] == {("LlamaForCausalLM", ""), ("OldArceeForCausalLM", "")}


def test_sglang_is_read_from_its_source(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    content = {
        "sglang/srt/server_args.py": SERVER_ARGS,
        "sglang/srt/speculative/spec_info.py": ALGORITHMS,
        "sglang/srt/models/llama.py": "\ufeffEntryClass = [LlamaForCausalLM, LlamaForClassification]\n",
        "sglang/srt/models/phi3.py": "EntryClass = Phi3ForCausalLM\n",
        "sglang/srt/layers/quantization/__init__.py": QUANTIZATION,
    }
    facts = sglang.read(sources(server, wheel_of(tmp_path, content)))

    assert facts["flags"] == {
        ("--speculative-algorithm", "value"),
        ("--speculative-draft-model-path --speculative-draft-model", "value"),
        ("--tensor-parallel-size --tp", "value"),
        ("--enable-metrics", "switch"),
        ("--checksum", "optional"),
        ("--config", "value"),
    }
    assert facts["methods"] == {("EAGLE", ""), ("NGRAM", ""), ("NEXTN", "")}
    assert facts["architectures"] == {("LlamaForCausalLM", ""), ("LlamaForClassification", ""), ("Phi3ForCausalLM", "")}
    assert facts["quantizations"] == {("fp8", ""), ("aqlm", ""), ("mxfp4", "")}


def test_a_wheel_of_another_build_is_refused(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    other = {name: text for name, text in VLLM_FILES.items() if "config" not in name}

    with pytest.raises(ValueError, match="does not know"):
        vllm.read(sources(server, wheel_of(tmp_path, other)))


def test_an_index_that_sends_whole_files_is_named(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    _Ranges.ranges = False

    with pytest.raises(NoWheel, match="whole files only"):
        vllm.read(sources(server, wheel_of(tmp_path, VLLM_FILES)))


def test_without_uv_the_message_says_what_to_do() -> None:
    with pytest.raises(FileNotFoundError, match="--uv PATH"):
        find("vllm", "0.32.0", Path("/no/such/uv"))


OLD = {"flags": {("--a", "value"), ("--b -b", "switch")}, "methods": {("medusa", "")}}
NEW = {"flags": {("--a", "switch"), ("--c", "value")}, "methods": {("medusa", "")}}


def test_the_difference_of_two_releases_names_what_came_went_and_changed() -> None:
    assert list(differences(OLD, NEW)) == [
        "~ flags\t--a\tvalue -> switch",
        "- flags\t--b -b\tswitch",
        "+ flags\t--c\tvalue",
    ]


def test_a_fact_that_goes_and_comes_back_has_two_ranges() -> None:
    releases = {Version("1.9"): OLD, Version("1.10"): NEW, Version("1.11"): OLD}
    read = {release: WheelSource("x.whl", "0" * 64) for release in releases}
    text = table_text("made", {**read, Version("1.12"): WheelSource(missing="none for Linux")}, releases)

    table = parse_facts(json.loads(text))

    assert by_release(table) == releases
    assert [(str(fact.since), str(fact.until)) for fact in table.sections["flags"] if fact.name == "--b -b"] == [
        ("1.9", "1.9"),
        ("1.11", "1.11"),
    ]
    assert table.sources[Version("1.12")].missing == "none for Linux"
    with pytest.raises(KeyError, match=r"no facts about 1\.12"):
        table.of("flags", Version("1.12"))
