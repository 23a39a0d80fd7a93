"""Argument lists as containers of running engines have them, each with what they mean. Written for these tests.

The shapes are those of public manifests: Deployments in engines' manuals, charts, KServe runtimes, llm-d, LWS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VLLM_IMAGE = "vllm/vllm-openai:v0.32.0"
SGLANG_IMAGE = "lmsysorg/sglang:v0.5.23"
SECRET = object()


@dataclass(frozen=True)
class ArgumentList:
    """One container.

    Args:
        env: literal values, or `SECRET` for one that comes from a Secret.
        means: fields of ReadArguments and their values.
        flags: some of the flags that must have been read, by main name.
        says: parts of sentences, each of which must be said; none may be said beside them.
        refused: part of what the engine's own parser says where it takes no such list.
    """

    name: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    means: Mapping[str, Any]
    image: str = VLLM_IMAGE
    env: Mapping[str, object] = field(default_factory=dict)
    flags: Mapping[str, str | None] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    refused: str | None = None

    @property
    def container(self) -> dict[str, Any]:
        """The container as a pod template has it."""
        whole: dict[str, Any] = {"name": "server", "image": self.image}
        if self.command:
            whole["command"] = list(self.command)
        if self.args:
            whole["args"] = list(self.args)
        if self.env:
            whole["env"] = [_variable(name, value) for name, value in self.env.items()]
        return whole


def _variable(name: str, value: object) -> dict[str, Any]:
    if value is SECRET:
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": "tokens", "key": name.lower()}}}
    return {"name": name, "value": value}


SERVE = ("vllm", "serve")
SERVER = ("python3", "-m", "vllm.entrypoints.openai.api_server")
LAUNCH = ("python3", "-m", "sglang.launch_server")
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
QWEN = "Qwen/Qwen2.5-7B-Instruct"
NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}

VLLM = (
    ArgumentList(
        "manual-shell",
        ("/bin/sh", "-c"),
        (
            "vllm serve mistralai/Mistral-7B-Instruct-v0.3 --trust-remote-code --enable-chunked-prefill "
            "--max_num_batched_tokens 1024",
        ),
        {"model": "mistralai/Mistral-7B-Instruct-v0.3", "speculative": None, "port": 8000},
        flags={"max-num-batched-tokens": "1024", "trust-remote-code": None},
    ),
    ArgumentList(
        "chart-plain",
        SERVE,
        (
            LLAMA,
            "--host",
            "0.0.0.0",
            "--port",
            "8000",
            "--enable-prefix-caching",
            "--max-model-len",
            "32768",
            "--dtype",
            "bfloat16",
            "--tensor-parallel-size",
            "2",
            "--enable-auto-tool-choice",
            "--tool-call-parser",
            "llama3_json",
            "--chat-template",
            "/templates/llama.jinja",
        ),
        {"model": LLAMA, "max_sequences": None, "figures_per_request": False},
        flags={"tensor-parallel-size": "2", "tool-call-parser": "llama3_json"},
    ),
    ArgumentList(
        "chart-values-with-equals",
        SERVE,
        (
            LLAMA,
            "--host=0.0.0.0",
            "--port=8080",
            "--served-model-name=llama",
            "--max-num-seqs=64",
            "--gpu-memory-utilization=0.92",
            '--limit-mm-per-prompt={"image": 4}',
        ),
        {"model": LLAMA, "served_names": ("llama",), "port": 8080, "max_sequences": 64},
    ),
    ArgumentList(
        "inference-service-runtime",
        SERVER,
        (
            "--port=8080",
            "--model=/mnt/models",
            "--served-model-name=$(MODEL_NAME)",
            "--distributed-executor-backend",
            "ray",
        ),
        {"model": "/mnt/models", "served_names": ("qwen",), "port": 8080, "module": True},
        env={"MODEL_NAME": "qwen"},
    ),
    ArgumentList(
        "disaggregated-decode",
        SERVE,
        (
            "Qwen/Qwen3-32B",
            "--port",
            "8200",
            "--block-size",
            "64",
            "--kv-transfer-config",
            '{"kv_connector":"NixlConnector", "kv_role":"kv_both"}',
            "--enforce-eager",
            "--prefix-caching-hash-algo",
            "sha256_cbor",
            "--kv-events-config",
            '{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://$(EPP):5557","topic":"kv@$(POD_IP)"}',
        ),
        {"model": "Qwen/Qwen3-32B", "port": 8200},
        env={"EPP": "gateway", "POD_IP": SECRET},
        says=("$(POD_IP) is a variable",),
    ),
    ArgumentList(
        "entrypoint-flags-only",
        (),
        ("--model", QWEN, "--max-model-len", "8192", "--max-num-seqs", "128"),
        {"model": QWEN, "max_sequences": 128, "release_hint": "0.32.0"},
        refused=None,
    ),
    ArgumentList("entrypoint-model-only", (), (QWEN, "--max-model-len=8192"), {"model": QWEN}),
    ArgumentList("entrypoint-serve", (), ("serve", QWEN, "--async-scheduling"), {"model": QWEN}),
    ArgumentList(
        "absolute-program",
        ("/opt/venv/bin/vllm", "serve"),
        ("/models/qwen", "--served-model-name", "qwen", "qwen-7b", "default"),
        {"model": "/models/qwen", "served_names": ("qwen", "qwen-7b", "default")},
    ),
    ArgumentList(
        "model-as-flag-of-serve",
        SERVE,
        ("--model", QWEN, "--port", "9000"),
        {"model": QWEN, "port": 9000},
    ),
    ArgumentList(
        "everything-in-command",
        ("python3", "-u", "-m", "vllm.entrypoints.openai.api_server", "--model", QWEN, "--api-key", "$(KEY)"),
        (),
        {"model": QWEN, "api_key": True, "prefix": ()},
        env={"KEY": SECRET},
    ),
    ArgumentList(
        "ngram-json",
        SERVE,
        (
            LLAMA,
            "--speculative-config",
            '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}',
            "--per-request-spec-decode-metrics",
            "summary",
            "--enable-force-include-usage",
        ),
        {"speculative": NGRAM, "draft_tokens": 5, "mode": "NGram", "figures_per_request": True, "usage_forced": True},
    ),
    ArgumentList(
        "ngram-json-block-text",
        SERVE,
        (
            LLAMA,
            "--speculative-config",
            '{\n  "method": "ngram",\n  "num_speculative_tokens": 5,\n  "prompt_lookup_max": 4\n}\n',
        ),
        {"speculative": NGRAM},
    ),
    ArgumentList(
        "ngram-json-with-dashes",
        SERVE,
        (LLAMA, '--speculative_config={"method":"ngram","num-speculative-tokens":5,"prompt-lookup-max":4}'),
        {"speculative": NGRAM},
    ),
    ArgumentList(
        "ngram-json-in-quotes",
        SERVE,
        (LLAMA, """--speculative-config='{"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4}'"""),
        {"speculative": NGRAM},
        says=("are part of the argument, since no shell takes them off",),
        refused="speculative-config",
    ),
    ArgumentList(
        "ngram-json-escaped",
        SERVE,
        (
            LLAMA,
            "--speculative-config",
            '"{\\"method\\":\\"ngram\\",\\"num_speculative_tokens\\":5,\\"prompt_lookup_max\\":4}"',
        ),
        {"speculative": NGRAM},
        says=("--speculative-config is no JSON object",),
        refused="speculative-config",
    ),
    ArgumentList(
        "ngram-python-quotes",
        SERVE,
        (LLAMA, "--speculative-config", "{'method': 'ngram', 'num_speculative_tokens': 5, 'prompt_lookup_max': 4}"),
        {"speculative": NGRAM},
        says=("single quotes where JSON has double ones",),
        refused="speculative-config",
    ),
    ArgumentList(
        "ngram-dotted",
        SERVE,
        (
            LLAMA,
            "--speculative-config.method",
            "ngram",
            "--speculative-config.num_speculative_tokens=5",
            "--speculative_config.prompt_lookup_max",
            "4",
            "--compilation-config.cudagraph_capture_sizes+=1,2,4",
            "--compilation-config.cudagraph_capture_sizes+",
            "8",
        ),
        {"draft_tokens": 5, "mode": "NGram"},
    ),
    ArgumentList(
        "ngram-dotted-in-two-spellings",
        SERVE,
        (LLAMA, "--speculative-config.method", "suffix", "-sc.method=ngram", "-sc.num_speculative_tokens", "2"),
        {"draft_tokens": 2, "mode": "NGram"},
        says=("only -sc. counts",),
    ),
    ArgumentList(
        "model-behind-flags",
        SERVE,
        ("--port", "8004", "--enforce-eager", QWEN),
        {"model": QWEN, "port": 8004},
    ),
    ArgumentList(
        "ngram-short-flags",
        SERVE,
        (LLAMA, "--spec-method", "ngram", "--spec-tokens", "3"),
        {"speculative": {"method": "ngram", "num_speculative_tokens": 3}, "draft_tokens": 3},
    ),
    ArgumentList(
        "eagle3",
        SERVE,
        (
            LLAMA,
            "-tp",
            "4",
            "-sc",
            '{"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 3, "method": "eagle3",'
            ' "draft_tensor_parallel_size": 1}',
            "--seed",
            "42",
        ),
        {"mode": "EAGLE3", "draft_tokens": 3},
        flags={"tensor-parallel-size": "4", "seed": "42"},
    ),
    ArgumentList(
        "multi-token-prediction",
        SERVE,
        (
            "deepseek-ai/DeepSeek-V3.1",
            "--data-parallel-size",
            "8",
            "--enable-expert-parallel",
            "--trust-remote-code",
            "--speculative-config",
            '{"method":"deepseek_mtp","num_speculative_tokens":1}',
            "--all2all-backend",
            "deepep_low_latency",
        ),
        {"mode": "MTP", "draft_tokens": 1},
    ),
    ArgumentList(
        "suffix",
        SERVE,
        (QWEN, "--speculative-config", '{"method":"suffix","num_speculative_tokens":32}', "--max-num-seqs", "256"),
        {"mode": "Suffix", "draft_tokens": 32, "max_sequences": 256},
    ),
    ArgumentList(
        "old-ngram",
        SERVER,
        (
            "--model",
            LLAMA,
            "--speculative-model",
            "[ngram]",
            "--num-speculative-tokens",
            "5",
            "--ngram-prompt-lookup-max",
            "4",
            "--ngram-prompt-lookup-min=2",
            "--use-v2-block-manager",
        ),
        {"speculative": NGRAM | {"prompt_lookup_min": 2}, "mode": "NGram", "release_hint": "0.6.3"},
        image="vllm/vllm-openai:v0.6.3",
        refused="unrecognized arguments",
    ),
    ArgumentList(
        "old-draft-model",
        SERVER,
        (
            "--model=facebook/opt-6.7b",
            "--speculative_model=facebook/opt-125m",
            "--num_speculative_tokens=5",
            "--speculative-draft-tensor-parallel-size=1",
            "--disable-log-requests",
            "--swap-space=16",
        ),
        {
            "speculative": {"model": "facebook/opt-125m", "num_speculative_tokens": 5, "draft_tensor_parallel_size": 1},
            "mode": None,
            "draft_tokens": 5,
        },
        image="registry.example/vllm-openai:v0.7.2",
        refused="unrecognized arguments",
    ),
    ArgumentList(
        "old-spellings-on-a-new-release",
        SERVE,
        (
            LLAMA,
            "--speculative-model=[ngram]",
            "--num-speculative-tokens=5",
            "--ngram-prompt-lookup-max=4",
            "--swap-space",
            "4",
            "--guided-decoding-backend=xgrammar",
        ),
        {"speculative": NGRAM, "mode": "NGram"},
        says=(
            "does not know the flag --speculative-model: newer ones than 0.8 have model in --speculative-config",
            "does not know the flag --num-speculative-tokens: newer ones than 0.8 have num_speculative_tokens",
            "does not know the flag --ngram-prompt-lookup-max: newer ones than 0.8 have prompt_lookup_max",
            "vLLM 0.32 does not know the flag --swap-space: 0.8 to 0.17 had it; preempted requests are computed anew",
            "--guided-decoding-backend: 0.8 to 0.11 had it; write structured-outputs-config.backend",
        ),
        refused="unrecognized arguments",
    ),
    ArgumentList(
        "flags-of-their-time",
        SERVER,
        (
            "--model",
            QWEN,
            "--swap-space",
            "4",
            "--disable-log-requests",
            "--guided-decoding-backend",
            "outlines",
            "--max-seq-len-to-capture=8192",
            "--enable-reasoning",
            "--reasoning-parser",
            "deepseek_r1",
        ),
        {"model": QWEN, "release_hint": "0.9.0"},
        image="vllm/vllm-openai:v0.9.0",
        refused="unrecognized arguments",
    ),
    ArgumentList(
        "abbreviations",
        SERVE,
        (
            QWEN,
            "--max-model=4096",
            "--gpu-mem",
            "0.8",
            "--tensor-p",
            "2",
            "--max-num-seq",
            "32",
            "--kv-cache-dtype",
            "fp8",
        ),
        {"max_sequences": 32},
        flags={"max-model-len": "4096", "gpu-memory-utilization": "0.8", "tensor-parallel-size": "2"},
    ),
    ArgumentList(
        "short-and-attached",
        SERVE,
        (QWEN, "-tp=2", "-pp", "1", "-O3", "-q", "fp8", "-dp", "1"),
        {},
        flags={"tensor-parallel-size": "2", "optimization-level": "3", "quantization": "fp8"},
    ),
    ArgumentList(
        "repeated",
        SERVE,
        (
            QWEN,
            "--port",
            "8001",
            "--middleware",
            "a.B",
            "--middleware",
            "c.D",
            "--port=8002",
            "--max-num-seqs",
            "8",
            "--max-num-seqs",
            "16",
            "--enable-lora",
            "--lora-modules",
            "sql=owner/sql",
            "chat=owner/chat",
        ),
        {"port": 8002, "max_sequences": 16},
    ),
    ArgumentList(
        "negatives",
        SERVE,
        (QWEN, "--no-enable-prefix-caching", "--no-enable-chunked-prefill", "--disable-log-stats"),
        {"metrics": False},
        flags={"no-enable-prefix-caching": None},
    ),
    ArgumentList(
        "json-everywhere",
        SERVE,
        (
            QWEN,
            "--allowed-origins",
            '["*"]',
            "--hf-overrides",
            '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}',
            "--override-generation-config",
            '{"temperature": 0.2}',
            "--compilation-config",
            '{"cudagraph_capture_sizes": [1, 2, 4]}',
            "--max-model-len",
            "32k",
        ),
        {},
        flags={"max-model-len": "32k"},
    ),
    ArgumentList(
        "values-from-environment",
        SERVE,
        ("$(MODEL)", "--max-model-len", "$(LENGTH)", "--revision=$(REVISION)", "--hf-token", "$(HF_TOKEN)"),
        {"model": QWEN},
        env={
            "OWNER": "Qwen",
            "MODEL": "$(OWNER)/Qwen2.5-7B-Instruct",
            "LENGTH": "8192",
            "REVISION": "main",
            "HF_TOKEN": SECRET,
        },
        flags={"max-model-len": "8192", "revision": "main"},
    ),
    ArgumentList(
        "key-in-environment",
        SERVE,
        (QWEN, "--uvicorn-log-level", "warning"),
        {"api_key": True},
        env={"VLLM_API_KEY": SECRET},
    ),
    ArgumentList(
        "script-one-command",
        ("/bin/bash", "-ec"),
        (
            "set -euo pipefail\n# the flags of the model card\nexec vllm serve "
            + QWEN
            + " \\\n  --max-num-seqs 64 \\\n"
            """  --speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'\n""",
        ),
        {"model": QWEN, "speculative": NGRAM, "max_sequences": 64, "shell": False},
    ),
    ArgumentList(
        "script-escaped-quotes",
        ("bash", "-c"),
        (
            "vllm serve " + QWEN + ' --speculative-config "{\\"method\\":\\"ngram\\",\\"num_speculative_tokens\\":5,'
            '\\"prompt_lookup_max\\":4}" --port 8000',
        ),
        {"speculative": NGRAM},
    ),
    ArgumentList(
        "script-variables",
        ("/bin/sh", "-c"),
        ("vllm serve $MODEL --port ${PORT:-8000}",),
        {"shell": True, "model": None},
        says=("a variable or a substitution ($MODEL)",),
    ),
    ArgumentList(
        "script-activates-first",
        ("/bin/bash", "-lc"),
        ("source /opt/vllm/bin/activate && exec vllm serve " + QWEN,),
        {"shell": True},
        says=("the shell script holds &&",),
    ),
    ArgumentList(
        "script-starts-ray",
        ("sh", "-c"),
        ("bash /workspace/multi-node-serving.sh leader --ray_cluster_size=2; vllm serve " + LLAMA + " -pp 2",),
        {"shell": True},
        says=("the shell script runs 2 commands",),
    ),
    ArgumentList(
        "script-with-pipe",
        ("sh", "-c"),
        ("vllm serve " + LLAMA + " 2>&1 | tee /var/log/vllm.log",),
        {"shell": True},
        says=("a redirection (>)",),
    ),
    ArgumentList(
        "script-of-the-image",
        ("/scripts/start.sh",),
        ("--model", LLAMA),
        {"shell": True},
        says=("/scripts/start.sh",),
    ),
    ArgumentList(
        "behind-numactl",
        ("numactl", "--cpunodebind=0", "--membind=0", "vllm", "serve"),
        (QWEN, "--port", "8000"),
        {"model": QWEN, "prefix": ("numactl", "--cpunodebind=0", "--membind=0")},
    ),
    ArgumentList(
        "behind-env-and-tini",
        ("/usr/bin/tini", "--", "env", "VLLM_USE_V1=1"),
        ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", QWEN),
        {"model": QWEN, "prefix": ("/usr/bin/tini", "--", "env", "VLLM_USE_V1=1")},
    ),
    ArgumentList(
        "flag-and-value-in-one",
        SERVE,
        (QWEN, "--max-model-len 8192", "--port 8001"),
        {"port": 8001},
        flags={"max-model-len": "8192"},
        says=("--max-model-len and its value are one argument", "--port and its value are one argument"),
        refused="unrecognized arguments",
    ),
    ArgumentList(
        "config-file",
        SERVE,
        (QWEN, "--config", "/etc/vllm/config.yaml"),
        {"model": QWEN},
        says=("--config /etc/vllm/config.yaml: flags in a file cannot be seen here",),
        refused="config.yaml",
    ),
    ArgumentList(
        "unknown-flag",
        SERVE,
        (QWEN, "--max-modle-len=8192", "--enforce-eager"),
        {"model": QWEN},
        says=("vLLM 0.32 does not know the flag --max-modle-len",),
        refused="unrecognized arguments",
    ),
    ArgumentList(
        "other-engine",
        ("text-generation-launcher",),
        ("--model-id", QWEN),
        {"engine": None, "model": None},
        image="ghcr.io/huggingface/text-generation-inference:3.3",
        says=("text-generation-inference",),
    ),
)

SGLANG = (
    ArgumentList(
        "sglang-manual",
        LAUNCH,
        ("--model-path", LLAMA, "--host", "0.0.0.0", "--port", "30000", "--mem-fraction-static", "0.85"),
        {"model": LLAMA, "port": 30000, "max_sequences": None, "metrics": False},
        image=SGLANG_IMAGE,
    ),
    ArgumentList(
        "sglang-eagle3",
        LAUNCH,
        (
            "--model",
            LLAMA,
            "--speculative-algorithm",
            "EAGLE3",
            "--speculative-draft-model-path",
            "jamesliu1/sglang-EAGLE3-Llama-3.1-Instruct-8B",
            "--speculative-num-steps",
            "3",
            "--speculative-eagle-topk",
            "1",
            "--speculative-num-draft-tokens",
            "4",
            "--dtype",
            "float16",
            "--enable-metrics",
        ),
        {"mode": "EAGLE3", "draft_tokens": 3, "max_sequences": 48, "metrics": True},
        image=SGLANG_IMAGE,
    ),
    ArgumentList(
        "sglang-eagle-tree",
        LAUNCH,
        (
            "--model-path=meta-llama/Llama-2-7b-chat-hf",
            "--speculative-algo=EAGLE",
            "--speculative-draft-model=lmsys/sglang-EAGLE-llama2-chat-7B",
            "--speculative-num-steps=5",
            "--speculative-eagle-topk=8",
            "--speculative-num-draft-tokens=64",
            "--max-running-requests=32",
        ),
        {"mode": "EAGLE", "draft_tokens": 63, "max_sequences": 32},
        image=SGLANG_IMAGE,
    ),
    ArgumentList(
        "sglang-multi-node",
        LAUNCH,
        (
            "--model-path",
            "deepseek-ai/DeepSeek-V3",
            "--tp",
            "16",
            "--dist-init-addr",
            "$(LWS_LEADER_ADDRESS):20000",
            "--nnodes",
            "$(LWS_GROUP_SIZE)",
            "--node-rank",
            "0",
            "--trust-remote-code",
            "--speculative-algorithm",
            "NEXTN",
            "--speculative-num-steps",
            "1",
            "--speculative-eagle-topk",
            "1",
            "--speculative-num-draft-tokens",
            "2",
        ),
        {"mode": "MTP", "draft_tokens": 1},
        image=SGLANG_IMAGE,
        env={"LWS_LEADER_ADDRESS": "leader", "LWS_GROUP_SIZE": "2"},
        flags={"dist-init-addr": "leader:20000", "nnodes": "2"},
    ),
    ArgumentList(
        "sglang-ngram",
        ("sglang", "serve"),
        (QWEN, "--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "12"),
        {"model": QWEN, "mode": "NGram", "draft_tokens": 11},
        image=SGLANG_IMAGE,
    ),
    ArgumentList(
        "sglang-standalone",
        LAUNCH,
        (
            "--model-path",
            QWEN,
            "--speculative-algorithm",
            "STANDALONE",
            "--speculative-draft-model-path",
            "Qwen/Qwen2.5-0.5B-Instruct",
            "--speculative-num-steps",
            "4",
            "--speculative-eagle-topk",
            "1",
        ),
        {"mode": "DraftModel", "draft_tokens": 4},
        image=SGLANG_IMAGE,
    ),
    ArgumentList(
        "sglang-labels",
        LAUNCH,
        (
            "--model-path",
            QWEN,
            "--enable-metrics",
            "--tokenizer-metrics-allowed-custom-labels",
            "route",
            "tenant",
            "--api-key",
            "$(KEY)",
            "--served-model-name",
            "qwen",
            "--json-model-override-args",
            '{"architectures": ["Qwen2ForCausalLM"]}',
        ),
        {"custom_labels": ("route", "tenant"), "metrics": True, "api_key": True, "served_names": ("qwen",)},
        image=SGLANG_IMAGE,
        env={"KEY": SECRET},
    ),
    ArgumentList(
        "sglang-abbreviations",
        LAUNCH,
        (
            "--model-path",
            QWEN,
            "--mem-frac",
            "0.8",
            "--context-len",
            "8192",
            "--served-model",
            "qwen",
            "--trust-remote",
        ),
        {"served_names": ("qwen",)},
        image=SGLANG_IMAGE,
        flags={"mem-fraction-static": "0.8", "context-length": "8192"},
    ),
    ArgumentList(
        "sglang-shell",
        ("bash", "-c"),
        ("exec python3 -m sglang.launch_server --model-path " + QWEN + " --tp 2 --port 8000\n",),
        {"model": QWEN, "port": 8000},
        image=SGLANG_IMAGE,
        flags={"tp-size": "2"},
    ),
    ArgumentList(
        "sglang-old-ngram",
        LAUNCH,
        (
            "--model-path",
            QWEN,
            "--speculative-algorithm",
            "NGRAM",
            "--speculative-num-draft-tokens",
            "8",
            "--speculative-ngram-max-match-window-size",
            "12",
            "--speculative-ngram-branch-length",
            "18",
        ),
        {"mode": "NGram", "draft_tokens": 7},
        image="lmsysorg/sglang:v0.5.4",
        refused="unrecognized arguments",
    ),
    ArgumentList(
        "sglang-old-spellings-on-a-new-release",
        LAUNCH,
        ("--model-path", QWEN, "--speculative-algorithm=NGRAM", "--speculative-ngram-branch-length=18"),
        {"mode": "NGram"},
        image=SGLANG_IMAGE,
        says=("SGLang 0.5.23 does not know the flag --speculative-ngram-branch-length: 0.5 had it",),
        refused="unrecognized arguments",
    ),
    ArgumentList(
        "sglang-image-only",
        (),
        ("python3", "-m", "sglang.launch_server", "--model-path", "/models/qwen", "--tp-size", "1"),
        {"model": "/models/qwen"},
        image="registry.example/inference@sha256:" + "0" * 64,
    ),
    ArgumentList(
        "sglang-router",
        ("python3", "-m", "sglang_router.launch_router"),
        ("--worker-urls", "http://a:30000"),
        {"engine": None},
        image=SGLANG_IMAGE,
        says=("SGLang's router",),
    ),
)

ALL = VLLM + SGLANG
