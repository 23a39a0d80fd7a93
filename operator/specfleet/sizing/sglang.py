"""How SGLang lays out its memory, as read in the sources of 0.5.2 to 0.5.23. Pure.

The share `--mem-fraction-static` of an accelerator is for weights and KV cache. Until 0.5.13 it is measured before the
draft is loaded: its weights, and its KV cache of as many tokens as the target's, come from what is left over. From
0.5.14 on both are counted (`model_executor/model_runner_kv_cache_mixin.py`, `pool_configurator.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from packaging.version import Version

from specfleet.api.findings import Finding, FindingReason, error, warning
from specfleet.api.v1alpha1 import DraftMode
from specfleet.engines.arguments import ReadArguments
from specfleet.sizing.cache import Blocks, held, token_bytes
from specfleet.sizing.drafts import DraftCost
from specfleet.sizing.layers import Kind
from specfleet.sizing.plan import FleetPlan, Serving, gib
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.shape import ModelShape
from specfleet.sizing.started import Parallel, Told, kv_bytes, refuse_layout, sequence_length, share, whole

DRAFT_COUNTED_SINCE = Version("0.5.14")
"""From here on the draft's weights and KV cache are part of the static share."""
OWN_CELL_SINCE = Version("0.5.19")
"""From here on a DFlash draft's KV cache is counted by its own shape."""
_CHANGES_THE_LAYOUT = (
    "cpu-offload-gb",
    "enable-dp-attention",
    "enable-double-sparsity",
    "enable-hisparse",
    "enable-unified-memory",
    "enable-kv-cache-sharding",
    "dcp-size",
    "disaggregation-mode",
    "json-model-override-args",
)
_TAKES_MEMORY = ("enable-lora", "lora-paths", "enable-memory-saver")
READ_FLAGS = frozenset(
    {
        "context-length",
        "mem-fraction-static",
        "max-total-tokens",
        "page-size",
        "kv-cache-dtype",
        "dtype",
        "quantization",
        *_CHANGES_THE_LAYOUT,
        *_TAKES_MEMORY,
    }
)
"""Flags that the plan looks at."""
READ_KEYS = frozenset({"draft_model_quantization", "num_draft_tokens"})
"""Flags of speculation that it looks at, without their prefix."""
_KV_DTYPES = {"bf16": "bfloat16"}


def lookahead(tokens: int, verified: object) -> int:
    """Slots beyond the k drafted ones: a running sequence gets two rounds ahead of it.

    Args:
        verified: tokens a round, the root among them: k + 1, or more of a tree.
    """
    size = verified if isinstance(verified, int) and verified > tokens else tokens + 1
    return 2 * size - tokens


def serving_of(
    arguments: ReadArguments, target: ModelShape, parallel: Parallel, max_sequences: int, told: Told
) -> Serving:
    """How a pod that is started so serves.

    Args:
        max_sequences: that one engine runs at once (one for each data-parallel rank).

    Raises:
        SizingProblem: an argument cannot be read, or what the engine would take cannot be told.
    """
    flags = dict(arguments.flags)
    refuse_layout(flags, _CHANGES_THE_LAYOUT)
    if any(layer.kind is not Kind.FULL for layer in target.layers):
        raise SizingProblem(
            "the target's layers keep different things (windows, states), for which SGLang has pools of their own that "
            "this plan does not know: start a pod and read max_total_num_tokens in its log"
        )
    if told.memory_bytes is None:
        raise SizingProblem("SGLang on CPUs takes its KV cache as it finds it: start a pod and read its log")
    static = told.utilisation or share(flags, "mem-fraction-static")
    if static is None:
        raise SizingProblem(
            "without engine.args[mem-fraction-static] SGLang works it out from the accelerator, its graphs and the "
            'draft, differently in each release: write it, for instance "0.85", which also makes both pools alike'
        )
    served = whole(flags, "context-length") or target.max_positions
    context = sequence_length(told.context, served, "context-length")
    dtype = flags.get("kv-cache-dtype")
    return Serving(
        memory_bytes=told.memory_bytes,
        utilisation=static,
        # What is left over holds them: activations, graphs, and until 0.5.13 the draft.
        overhead_bytes=told.overhead_bytes or 0,
        context=context,
        longest=served,
        max_sequences=max_sequences,
        kv_bytes=kv_bytes(_KV_DTYPES.get(dtype or "", dtype), target),
        blocks=Blocks(size=whole(flags, "page-size") or 1, grouped=False),
        tensor=parallel.tensor,
        pipeline=parallel.pipeline,
        data=parallel.data,
        most_kv_tokens=whole(flags, "max-total-tokens"),
        refuses_longest=False,
    )


def counted(cost: DraftCost, target: ModelShape, mode: DraftMode, release: Version) -> DraftCost:
    """The draft as the engine counts it into the static share.

    Until 0.5.13 not at all. From then on its layers are taken to be as wide as the target's; those of DFlash by their
    own shape since 0.5.19.
    """
    if release < DRAFT_COUNTED_SINCE:
        return replace(cost, layers=(), weights=replace(cost.weights, body=0, experts=0, embedding=0, head=0))
    if mode is DraftMode.DFLASH and release >= OWN_CELL_SINCE:
        return cost
    return replace(cost, layers=(target.layers[-1],) * len(cost.layers))


def findings(plan: FleetPlan, cost: DraftCost, target: ModelShape, serving: Serving, release: Version) -> list[Finding]:
    """What a draft takes beyond what the engine counted for it.

    Args:
        cost: the draft as it is.
    """
    layers = held(cost.layers, tensor=cost.tensor, kv_bytes=serving.kv_bytes, model_bytes=cost.dtype_bytes)
    tokens = (plan.speculative.counted_tokens or 0) // serving.data
    own = token_bytes(layers) * tokens
    left = serving.memory_bytes - int(serving.utilisation * serving.memory_bytes)
    if release < DRAFT_COUNTED_SINCE:
        beside = own + cost.weights.total // cost.tensor
        if beside >= left:
            return [
                error(
                    FindingReason.DOES_NOT_FIT,
                    "spec.drafts[0]",
                    f"SGLang {release} takes the draft's weights and KV cache, {gib(beside)}, from the {gib(left)} "
                    "that mem-fraction-static leaves over for activations: lower it, or use "
                    f"{DRAFT_COUNTED_SINCE} or newer, which counts the draft",
                )
            ]
        return []
    taken = [target.layers[-1]] * len(cost.layers)
    reckoned = token_bytes(
        held(taken, tensor=serving.tensor, kv_bytes=serving.kv_bytes, model_bytes=target.dtype_bytes)
    )
    excess = own - reckoned * tokens
    if excess >= left:
        return [
            error(
                FindingReason.DOES_NOT_FIT,
                "spec.drafts[0]",
                f"SGLang {release} takes the draft's layers for as wide as the target's, and they are wider: it would "
                f"take {gib(excess)} more than it reckons, and mem-fraction-static leaves {gib(left)}: lower it",
            )
        ]
    if excess > left // 4:
        return [
            warning(
                FindingReason.DRAFT_COSTS_SEQUENCES,
                "spec.drafts[0]",
                f"SGLang {release} takes the draft's layers for as wide as the target's, and they are wider: "
                f"{gib(excess)} of the {gib(left)} that mem-fraction-static leaves over go to its KV cache: lower it",
            )
        ]
    return []


def uncounted(flags: Mapping[str, str | None]) -> tuple[str, ...]:
    """Notes on what the plan takes for granted."""
    notes = [f"what engine.args[{name}] takes is not counted" for name in _TAKES_MEMORY if name in flags]
    return (
        *notes,
        "SGLang's share is taken of the whole memory; what its start leaves free before weights are loaded is a little "
        "less, and no log stands behind these figures: compare with max_total_num_tokens of a running pod",
    )
