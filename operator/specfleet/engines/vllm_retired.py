"""vLLM: flags of older releases, and what they say in the words of the newest. Read in the released sources."""

from __future__ import annotations

from specfleet.engines.flags import Arity, Flag
from specfleet.engines.release import Minor

_V = Minor(0, 8)

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

HINTS: dict[str, str] = {
    "disable-log-requests": "not logging requests is the default now",
    "use-v2-block-manager": "it did nothing since 0.7",
    "num-scheduler-steps": "the engine that had it is gone",
    "scheduler-delay-factor": "the engine that had it is gone",
    "swap-space": "preempted requests are computed anew",
    "preemption-mode": "preempted requests are computed anew",
    "device": "the platform is found by itself",
    "max-seq-len-to-capture": "write compilation-config",
    "guided-decoding-backend": "write structured-outputs-config.backend",
    "enable-reasoning": "reasoning-parser alone switches it on",
    "rope-scaling": "write hf-overrides",
    "rope-theta": "write hf-overrides",
    "task": "write runner",
    "disable-async-output-proc": "write no-async-scheduling",
}
"""What to do instead, for flags that newer releases do not have."""

UNREAD: tuple[Flag, ...] = tuple(
    Flag(
        (f"--{name}", *(("-spec-draft-tp",) if name == "speculative-draft-tensor-parallel-size" else ())), arity, _V, _V
    )
    for names, arity in ((SPECULATIVE_KEYS, Arity.ONE), (SPECULATIVE_SWITCHES, Arity.OPTIONAL))
    for name in names
    if name not in ("spec-method", "spec-model", "spec-tokens")
)
"""Flags of speculation from before the first release whose flags were read."""
