"""vLLM: flags of older releases, and what they say in the words of the newest. Read in the released sources."""

from __future__ import annotations

from specfleet.engines.flags import Arity, Flag
from specfleet.engines.vllm_tables import OLDEST

SPECULATIVE_KEYS: dict[str, str] = {
    "speculative-model": "model",
    "num-speculative-tokens": "num_speculative_tokens",
    "ngram-prompt-lookup-max": "prompt_lookup_max",
    "ngram-prompt-lookup-min": "prompt_lookup_min",
    "speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "speculative-model-quantization": "quantization",
    "speculative-max-model-len": "max_model_len",
    "speculative-disable-by-batch-size": "disable_by_batch_size",
    "spec-decoding-acceptance-method": "acceptance_method",
    "typical-acceptance-sampler-posterior-threshold": "posterior_threshold",
    "typical-acceptance-sampler-posterior-alpha": "posterior_alpha",
    "spec-method": "method",
    "spec-model": "model",
    "spec-tokens": "num_speculative_tokens",
}
"""Flags that say one key of the speculative config: those of releases before it, and the short ones of newer ones."""

SPECULATIVE_SWITCHES: dict[str, str] = {
    "speculative-disable-mqa-scorer": "disable_mqa_scorer",
    "disable-logprobs-during-spec-decoding": "disable_logprobs",
}

GONE_KEYS: dict[str, str] = {
    "disable_by_batch_size": "it did nothing since 0.10 and is refused since 0.17; the policy takes its place",
    "acceptance_method": "it is gone since 0.10; rejection_sample_method took its place",
    "posterior_threshold": "it is gone since 0.10, with typical acceptance",
    "posterior_alpha": "it is gone since 0.10, with typical acceptance",
    "disable_mqa_scorer": "it is gone since 0.10",
    "disable_logprobs": "it is gone since 0.11",
    "speculative_token_tree": "it is gone since 0.21",
}
"""Keys of the speculative config that newer releases refuse, and why."""

_OTHERS: dict[str, tuple[Arity, str]] = {
    "disable-log-requests": (Arity.NONE, "not logging requests is the default now"),
    "use-v2-block-manager": (Arity.NONE, "it did nothing since 0.7"),
    "num-scheduler-steps": (Arity.ONE, "the engine that had it is gone"),
    "multi-step-stream-outputs": (Arity.ONE, "the engine that had it is gone"),
    "scheduler-delay-factor": (Arity.ONE, "the engine that had it is gone"),
    "swap-space": (Arity.ONE, "preempted requests are computed anew"),
    "preemption-mode": (Arity.ONE, "preempted requests are computed anew"),
    "worker-use-ray": (Arity.NONE, "write distributed-executor-backend: ray"),
    "engine-use-ray": (Arity.NONE, "the engine that had it is gone"),
    "device": (Arity.ONE, "the platform is found by itself"),
    "max-seq-len-to-capture": (Arity.ONE, "write compilation-config"),
    "max-context-len-to-capture": (Arity.ONE, "write compilation-config"),
    "guided-decoding-backend": (Arity.ONE, "write structured-outputs-config.backend"),
    "enable-reasoning": (Arity.NONE, "reasoning-parser alone switches it on"),
    "rope-scaling": (Arity.ONE, "write hf-overrides"),
    "rope-theta": (Arity.ONE, "write hf-overrides"),
    "task": (Arity.ONE, "write runner"),
    "disable-async-output-proc": (Arity.NONE, "write no-async-scheduling"),
    "image-input-type": (Arity.ONE, "the image pipeline that had it is gone"),
    "max-log-probs": (Arity.ONE, "write max-logprobs"),
}

RETIRED_HINTS: dict[str, str] = {name: hint for name, (_, hint) in _OTHERS.items()}
"""What to do instead, for flags that have nothing to do with speculation."""


def _flag(arity: Arity, name: str, *more: str) -> Flag:
    return Flag((f"--{name}", *more), arity, OLDEST, OLDEST)


RETIRED: tuple[Flag, ...] = (
    *(
        _flag(Arity.ONE, name, *(("-spec-draft-tp",) if name == "speculative-draft-tensor-parallel-size" else ()))
        for name in SPECULATIVE_KEYS
        if not name.startswith("spec-") or name == "spec-decoding-acceptance-method"
    ),
    _flag(Arity.OPTIONAL, "speculative-disable-mqa-scorer"),
    _flag(Arity.OPTIONAL, "disable-logprobs-during-spec-decoding"),
    *(_flag(arity, name) for name, (arity, _) in _OTHERS.items()),
)
"""Flags that older releases know and the tabled ones do not."""
