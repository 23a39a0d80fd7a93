"""Counts a model's parameters from its shape, and what they weigh in memory. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from specfleet.sizing.dtypes import Quantisation
from specfleet.sizing.layers import Kind, State
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.shape import Experts, ModelShape


@dataclass(frozen=True)
class Parameters:
    """Parameters by part.

    Args:
        embedding: of the input layer.
        head: of the output layer; 0 where it is the embedding.
        attention: of all layers, states too.
        dense: feed-forward parts that belong to no routed expert.
        experts: routed experts.
        rest: normalisations, biases and routers.
    """

    embedding: int
    head: int
    attention: int
    dense: int
    experts: int
    rest: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.embedding + self.head + self.attention + self.dense + self.experts + self.rest


@dataclass(frozen=True)
class Weights:
    """Bytes of weights by how they are shared out: experts may be spread further than the rest.

    Args:
        embedding, head: on the first and on the last pipeline stage.
        experts: routed experts.
        body: everything else.
    """

    embedding: int
    head: int
    experts: int
    body: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.embedding + self.head + self.experts + self.body

    @property
    def output(self) -> int:
        """Of the layer that makes logits: the embedding where that is it."""
        return self.head or self.embedding

    def scaled_to(self, total: int) -> Weights:
        """The same proportions at another total: the counted shares of a checkpoint whose size is known."""
        ratio = total / self.total if self.total else 0.0
        return Weights(*(round(part * ratio) for part in (self.embedding, self.head, self.experts, self.body)))


def count(shape: ModelShape) -> Parameters:
    """The parameters of the language model, without layers for multi-token prediction.

    Raises:
        SizingProblem: the model type is one whose parameters are not known from config.json.
    """
    if not shape.family.countable:
        raise SizingProblem(
            f"the weights of model type {shape.model_type} cannot be counted from config.json: put the checkpoint's "
            "model.safetensors.index.json beside it"
        )
    dense_layers = sum(1 for layer in shape.layers if layer.kind is not Kind.NOTHING)
    experts = shape.experts
    if experts is not None:
        dense_layers -= experts.layers
    embedding = shape.vocab * shape.hidden
    return Parameters(
        embedding=embedding,
        head=0 if shape.tied else embedding,
        attention=sum(_attention(shape, layer.kind, layer.state) for layer in shape.layers),
        dense=dense_layers * _feed_forward(shape, shape.intermediate)
        + (experts.layers * _shared(shape, experts) if experts is not None else 0),
        experts=experts.layers * _routed(shape, experts) if experts is not None else 0,
        rest=shape.hidden
        + sum(_norms(shape, layer.kind) for layer in shape.layers)
        + (experts.layers * experts.count * shape.hidden if experts is not None else 0),
    )


def weights(shape: ModelShape) -> Weights:
    """Bytes of the weights that an engine keeps without speculation.

    A known size of the checkpoint wins over what is counted; layers for multi-token prediction in it are taken off.

    Raises:
        SizingProblem: neither is the size known, nor can the parameters or their format be.
    """
    if shape.parameter_bytes is not None and not shape.family.countable:
        return Weights(0, 0, 0, shape.parameter_bytes)
    parts = count(shape)
    if shape.parameter_bytes is None:
        return weighed(parts, shape)
    counted = weighed(parts, shape, size_known=True)
    mtp = mtp_weights(shape).total if shape.mtp_layers else 0
    return counted.scaled_to(round(shape.parameter_bytes * counted.total / (counted.total + mtp)))


def weighed(parts: Parameters, shape: ModelShape, *, size_known: bool = False) -> Weights:
    """Bytes of counted parameters in the checkpoint's number formats.

    Args:
        size_known: only proportions matter, so that a format that is not known may be taken for the model's own.

    Raises:
        SizingProblem: the quantisation is not known.
    """
    own = shape.dtype_bytes
    quantised = shape.quantisation
    packed = _packed_bytes(quantised, own, size_known=size_known)

    def stored(parameters: int, is_quantised: bool) -> int:
        return round(parameters * (packed if is_quantised else own))

    attention = quantised is not None and quantised.attention
    dense = quantised is not None and quantised.dense
    return Weights(
        embedding=parts.embedding * own,
        head=stored(parts.head, quantised is not None and quantised.head),
        experts=stored(parts.experts, quantised is not None),
        body=stored(parts.attention, attention) + stored(parts.dense, dense) + parts.rest * own,
    )


def read_bytes(weighed: Weights, experts: Experts | None) -> int:
    """Bytes that one forward pass of one token reads: of the embedding a row, of the routed experts the active ones."""
    routed = weighed.experts * experts.active // experts.count if experts is not None else weighed.experts
    return weighed.output + routed + weighed.body


def mtp_weights(shape: ModelShape) -> Weights:
    """Bytes of the layers for multi-token prediction; embedding and output layer are the target's.

    Each is a layer of the target, a projection from twice the hidden size and three normalisations (DeepSeek-V3
    report, 2.2).
    """
    if not shape.layers:
        return Weights(0, 0, 0, 0)
    last = shape.layers[-1]
    experts = shape.experts
    one = Parameters(
        embedding=0,
        head=0,
        attention=_attention(shape, last.kind, last.state),
        dense=2 * shape.hidden * shape.hidden
        + (_shared(shape, experts) if experts is not None else _feed_forward(shape, shape.intermediate)),
        experts=_routed(shape, experts) if experts is not None else 0,
        rest=_norms(shape, last.kind) + 3 * shape.hidden + (experts.count * shape.hidden if experts is not None else 0),
    )
    single = weighed(one, shape, size_known=shape.parameter_bytes is not None)
    return Weights(0, 0, single.experts * shape.mtp_layers, single.body * shape.mtp_layers)


def head_layer_parameters(shape: ModelShape, inputs: int) -> int:
    """Parameters of one layer of a draft head whose attention reads `inputs` values a token, not the hidden size."""
    wider = (inputs - shape.hidden) * shape.head_dim * (shape.heads + 2 * shape.kv_heads)
    return (
        _attention(shape, Kind.FULL, None) + wider + _feed_forward(shape, shape.intermediate) + _norms(shape, Kind.FULL)
    )


def _packed_bytes(quantised: Quantisation | None, own: int, *, size_known: bool) -> float:
    if quantised is None:
        return own
    if quantised.bits is not None:
        return quantised.bits / 8
    if size_known:
        return own
    raise SizingProblem(
        f"the size of weights quantised by {quantised.method} is not known: put the checkpoint's "
        "model.safetensors.index.json beside its config.json"
    )


def _attention(shape: ModelShape, kind: Kind, state: State | None) -> int:
    if kind is Kind.NOTHING:
        return 0
    if state is not None:
        return _delta_net(shape, state)
    if shape.latent is not None:
        return _latent_attention(shape)
    queries = shape.heads * shape.head_dim
    keys = 2 * shape.kv_heads * shape.head_dim
    made = queries * (2 if shape.family.gate_in_q else 1) + keys
    return shape.hidden * (made + queries)


def _latent_attention(shape: ModelShape) -> int:
    """DeepSeek-V2 report, 2.1: compressed queries, one latent for keys and values, a rotary key for all heads."""
    latent = shape.latent
    assert latent is not None
    query = shape.heads * (latent.nope + latent.rope)
    queries = (
        shape.hidden * query
        if latent.query_rank is None
        else latent.query_rank * (shape.hidden + query) + latent.query_rank
    )
    values = latent.rank * shape.heads * (latent.nope + latent.value) + latent.rank
    return queries + shape.hidden * (latent.rank + latent.rope) + values + shape.heads * latent.value * shape.hidden


def _delta_net(shape: ModelShape, state: State) -> int:
    """Gated delta net as in Qwen3-Next: projections, the two gates of each value head, a short convolution."""
    projections = shape.hidden * (state.channels + 2 * state.values + 2 * state.heads)
    return projections + state.channels * state.kernel + 2 * state.heads + state.values // state.heads


def _feed_forward(shape: ModelShape, width: int) -> int:
    return (3 if shape.family.gated else 2) * shape.hidden * width


def _routed(shape: ModelShape, experts: Experts) -> int:
    one = _feed_forward(shape, experts.width)
    if shape.family.qkv_bias and shape.model_type == "gpt_oss":
        one += 2 * experts.width + shape.hidden
    return experts.count * one


def _shared(shape: ModelShape, experts: Experts) -> int:
    return _feed_forward(shape, experts.shared) + (shape.hidden if shape.family.shared_gate and experts.shared else 0)


def _norms(shape: ModelShape, kind: Kind) -> int:
    """Normalisations and biases of one layer."""
    if kind is Kind.NOTHING:
        return shape.hidden
    own = shape.family.norms * shape.hidden
    if kind is Kind.STATE or shape.latent is not None:
        return own
    if shape.family.qk_norm:
        own += 2 * shape.head_dim
    if shape.attention_bias:
        own += (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    return own
