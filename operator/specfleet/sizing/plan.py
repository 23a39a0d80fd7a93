"""The KV plan of a fleet: what each pool has room for, what the draft costs, what the second pool costs. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from specfleet.api.findings import Finding, FindingReason, error, warning
from specfleet.sizing.cache import Blocks, Held, Layout, held, kv_tokens, layout, token_bytes
from specfleet.sizing.drafts import NO_DRAFT, DraftCost
from specfleet.sizing.layers import Kind
from specfleet.sizing.parameters import Weights, read_bytes, weights
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.shape import ModelShape

LARGEST_SHARE = 0.2
"""A draft that takes more of the sequences than this is warned about."""
GIB = 1 << 30
OVERHEAD_BYTES = int(2.5 * GIB)
"""Activations, graphs and communication buffers on one accelerator: fitted to vLLM's log of Llama 3.1 8B on an H100."""


@dataclass(frozen=True)
class Serving:
    """How pods serve, and on what.

    Args:
        memory_bytes: of one accelerator, as a process sees it.
        utilisation: share of it that the engine takes.
        overhead_bytes: of what it takes, on one accelerator, that is neither weights nor KV cache.
        context: tokens of a sequence, prompt and answer, that is planned for.
        longest: tokens beyond which the engine lets no sequence go, drafted ones included; None where it is not known.
        max_sequences: that one engine runs at once (one for each data-parallel rank).
        kv_bytes: of a KV element.
        kv_memory_bytes: KV cache on one accelerator where the engine is told it outright; None otherwise.
        kv_blocks: where the engine is told those.
        most_kv_tokens: above which the engine does not go, whatever fits; None without such a limit.
        refuses_longest: whether the engine does not start where no sequence of the longest length fits.
    """

    memory_bytes: int
    utilisation: float
    context: int
    max_sequences: int
    kv_bytes: int
    longest: int | None = None
    overhead_bytes: int = OVERHEAD_BYTES
    blocks: Blocks = field(default_factory=Blocks)
    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    kv_memory_bytes: int | None = None
    kv_blocks: int | None = None
    most_kv_tokens: int | None = None
    refuses_longest: bool = True

    @property
    def accelerators(self) -> int:
        """Of one pod."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True)
class PoolRoom:
    """What one pod of a pool has room for.

    Args:
        kv_bytes_per_token: of model and draft, of the layers that keep all tokens, no copies counted.
        kv_bytes_per_token_held: the same on the accelerator that holds most of it.
        sequence_bytes: of a sequence of the planned length on the accelerator that is fullest.
        weight_bytes, kv_bytes: on that accelerator; kv_bytes is not above 0 where nothing is left.
        kv_tokens, sequences: of one pod; sequences of the planned length.
        counted_tokens: blocks times their size, as the engine counts them; where layers keep different things that is
            not what sequences can hold. None where the engine has blocks of several sizes.
        running: sequences that it runs at once: not more than the engine's own limit.
    """

    kv_bytes_per_token: int
    kv_bytes_per_token_held: int
    sequence_bytes: int
    weight_bytes: int
    kv_bytes: int
    kv_tokens: int
    counted_tokens: int | None
    sequences: int
    running: int


@dataclass(frozen=True)
class FleetPlan:
    """The plan.

    Args:
        second_pool_accelerators: accelerators that serve without speculation beside those that serve with it.
        lost: share of the sequences that the draft takes from a pod, from 0 to 1.
        break_even: tokens per decode step that speculation needs while batches are small, 1 or more.
        findings: refusals and warnings.
    """

    baseline: PoolRoom
    speculative: PoolRoom
    baseline_replicas: int
    speculative_replicas: int
    accelerators_per_pod: int
    second_pool_accelerators: int
    lost: float
    break_even: float
    findings: tuple[Finding, ...]


def fleet_plan(
    target: ModelShape,
    draft: DraftCost,
    serving: Serving,
    *,
    baseline_replicas: int,
    speculative_replicas: int,
    speculative_serving: Serving | None = None,
) -> FleetPlan:
    """The plan of both pools.

    Args:
        speculative_serving: where the speculative pool's engine is started otherwise.

    Raises:
        SizingProblem: weights or cache cannot be told from the shapes.
    """
    without = pool_room(target, NO_DRAFT, serving)
    with_draft = pool_room(target, draft, speculative_serving or serving)
    lost = _lost(without, with_draft, serving)
    return FleetPlan(
        baseline=without,
        speculative=with_draft,
        baseline_replicas=baseline_replicas,
        speculative_replicas=speculative_replicas,
        accelerators_per_pod=serving.accelerators,
        second_pool_accelerators=baseline_replicas * serving.accelerators,
        lost=lost,
        break_even=break_even_at_rest(target, draft, serving.tensor),
        findings=tuple(_findings(without, with_draft, serving, lost)),
    )


def break_even_at_rest(target: ModelShape, draft: DraftCost, tensor: int) -> float:
    """L* = 1 + k c, with c = one draft step / one target step (arXiv:2211.17192, Theorem 3.8).

    A small batch waits for weights, so steps compare as the weights that they read; launches, attention and the check
    of k tokens more are left out. Tokens per decode step, 1 or more.
    """
    step = read_bytes(weights(target), target.experts) / tensor
    return 1.0 + draft.round_bytes / draft.tensor / step if step else 1.0


def _lost(without: PoolRoom, with_draft: PoolRoom, serving: Serving) -> float:
    """Share of the sequences that run, before they are rounded: of a few long ones, one more or less is chance."""
    limit = serving.max_sequences
    before, after = (min(room.kv_bytes / room.sequence_bytes, limit) for room in (without, with_draft))
    return max(0.0, 1 - max(after, 0) / before) if before > 0 else 0.0


def pool_room(target: ModelShape, draft: DraftCost, serving: Serving) -> PoolRoom:
    """What one pod has room for. Raises SizingProblem where weights or cache cannot be told from the shapes."""
    own = weights(target)
    if serving.pipeline > len(target.layers):
        raise SizingProblem(
            f"target.parallelism.pipeline is {serving.pipeline}, and the target has {len(target.layers)} layers: lower "
            "it"
        )
    stages = [_stage(target, own, draft, serving, at) for at in range(serving.pipeline)]
    counted = [stage.counted_tokens for stage in stages if stage.counted_tokens is not None]
    fullest = min(stages, key=lambda stage: (stage.sequences, stage.kv_bytes))
    return PoolRoom(
        kv_bytes_per_token=kv_bytes_per_token(target, draft, serving.kv_bytes),
        kv_bytes_per_token_held=max(token_bytes(stage.layers) for stage in stages),
        sequence_bytes=fullest.sequence_bytes,
        weight_bytes=fullest.weight_bytes,
        kv_bytes=fullest.kv_bytes,
        kv_tokens=serving.data * min(stage.tokens for stage in stages),
        counted_tokens=serving.data * min(counted) if len(counted) == len(stages) else None,
        sequences=serving.data * fullest.sequences,
        running=serving.data * min(fullest.sequences, serving.max_sequences),
    )


def kv_bytes_per_token(target: ModelShape, draft: DraftCost, kv_bytes: int) -> int:
    """Bytes of KV cache that one more token takes in the target and its draft, of the layers that keep all tokens.

    2 x layers x key-value heads x head width x bytes; layers x (latent + rotary width) x bytes with latent attention.
    """
    own = held(target.layers, tensor=1, kv_bytes=kv_bytes, model_bytes=target.dtype_bytes)
    drafts = held(draft.layers, tensor=1, kv_bytes=draft.kv_bytes or kv_bytes, model_bytes=draft.dtype_bytes)
    return token_bytes(own) + token_bytes(drafts)


@dataclass(frozen=True)
class _Stage:
    layers: list[Held]
    weight_bytes: int
    kv_bytes: int
    sequence_bytes: int
    tokens: int
    counted_tokens: int | None
    sequences: int


def _stage(target: ModelShape, own: Weights, draft: DraftCost, serving: Serving, at: int) -> _Stage:
    """One pipeline stage: its share of the layers; the draft is on the last one."""
    count = len(target.layers)
    mine = target.layers[at * count // serving.pipeline : (at + 1) * count // serving.pipeline]
    layers = held(
        mine,
        tensor=serving.tensor,
        kv_bytes=serving.kv_bytes,
        model_bytes=target.dtype_bytes,
        tokens=draft.tokens,
    )
    share = len(mine) / len(target.layers)
    spread = serving.tensor * (serving.data if target.experts is not None else 1)
    weighed = share * (own.body / serving.tensor + own.experts / spread)
    first, last = at == 0, at == serving.pipeline - 1
    weighed += (own.embedding if first else 0) / serving.tensor
    # An output layer that is the embedding stands on the last stage, too.
    weighed += (own.head or (0 if first else own.embedding) if last else 0) / serving.tensor
    if last:
        layers += held(
            draft.layers,
            tensor=draft.tensor,
            kv_bytes=draft.kv_bytes or serving.kv_bytes,
            model_bytes=draft.dtype_bytes,
            tokens=draft.tokens,
        )
        weighed += draft.weights.total / draft.tensor
    slots = draft.slots if serving.longest is None else min(draft.slots, max(0, serving.longest - serving.context))
    laid = layout(layers, serving.blocks)
    memory = _kv_memory(serving, math.ceil(weighed), laid)
    one = laid.sequence_bytes(serving.context, slots, draft.tokens)
    uniform = all(layer.kind is Kind.FULL for layer in layers)
    tokens = kv_tokens(memory, layers, serving.blocks, tokens=serving.context)
    # The division in tokens, as the engine counts: whole blocks in memory, whole blocks a sequence.
    length = serving.blocks.size * math.ceil((serving.context + slots) / serving.blocks.size)
    fitting = tokens // length if uniform else max(memory, 0) // one if one else 0
    counted = max(memory, 0) // laid.block_bytes * laid.size if laid.block_bytes else None
    return _Stage(layers, math.ceil(weighed), memory, one, tokens, counted, fitting)


def _kv_memory(serving: Serving, weight_bytes: int, laid: Layout) -> int:
    if serving.kv_blocks is not None:
        if laid.block_bytes is None:
            raise SizingProblem(
                "the engine is told a number of KV blocks, and this target and draft have blocks of several sizes: "
                "remove num-gpu-blocks-override to plan"
            )
        return serving.kv_blocks * laid.block_bytes
    if serving.kv_memory_bytes is not None:
        return serving.kv_memory_bytes
    found = int(serving.utilisation * serving.memory_bytes) - serving.overhead_bytes - weight_bytes
    if serving.most_kv_tokens is not None and laid.block_bytes is not None:
        found = min(found, serving.most_kv_tokens // laid.size * laid.block_bytes)
    return found


def _findings(without: PoolRoom, with_draft: PoolRoom, serving: Serving, lost: float) -> list[Finding]:
    context = serving.context
    if without.sequences == 0:
        return [error(FindingReason.DOES_NOT_FIT, "spec.target", _does_not_fit("the target", without, serving))]
    if with_draft.sequences == 0:
        return [
            error(
                FindingReason.DOES_NOT_FIT,
                "spec.drafts[0]",
                _does_not_fit("the target with its draft", with_draft, serving),
            )
        ]
    if lost > LARGEST_SHARE:
        return [
            warning(
                FindingReason.DRAFT_COSTS_SEQUENCES,
                "spec.drafts[0]",
                f"the draft takes {round(100 * lost)} % of the sequences of {context} tokens that a pod runs "
                f"({without.running} without, {with_draft.running} with it), more than a fifth: take a draft with "
                "fewer layers or key-value heads, a head on the target (EAGLE3), or NGram",
            )
        ]
    return []


def _does_not_fit(what: str, room: PoolRoom, serving: Serving) -> str:
    if serving.kv_memory_bytes is not None or serving.kv_blocks is not None:
        return (
            f"{what} has {gib(room.kv_bytes)} of KV cache by the engine's arguments, and one sequence of "
            f"{serving.context} tokens needs {gib(room.sequence_bytes)}: give it more, or lower the served context "
            "(max-model-len)"
        )
    taken = serving.utilisation * serving.memory_bytes
    sums = (
        f"{gib(room.weight_bytes)} of weights and {gib(serving.overhead_bytes)} of other needs leave "
        f"{gib(max(room.kv_bytes, 0))} of {gib(taken)} for KV cache, and one sequence of {serving.context} tokens "
        f"needs {gib(room.sequence_bytes)}"
    )
    return (
        f"{what} does not fit an accelerator of {gib(serving.memory_bytes)}: {sums}: raise "
        "target.parallelism.tensor, lower the served context (max-model-len), or take a smaller or quantised model"
    )


def gib(amount: float) -> str:
    """Bytes in GiB with two decimals."""
    return f"{amount / GIB:.2f} GiB"
