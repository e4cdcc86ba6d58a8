"""One rule for every operation of a forward pass: relevance of what comes out to relevance of what goes in.

Linear operations with weights share by the rules of the composite. Of the others,

- those that move values about (reshaping, slicing, padding) move relevance back;
- those that take each value on its own (activations, scales, what is added that does not depend on the input)
  leave relevance where it is: there is nothing else that it could be due to;
- sums of values that depend on the input, and means, share in proportion, equally where they are 0;
- of maxima, the winner takes all;
- products: the factor that only weighs or scales (attention, gates, lengths) is held constant;
- normalisation holds the deviation that it divides by constant.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from whycluster.core.errors import GradientWarning, UnsupportedModelError
from whycluster.deep.lrp.composites import AVERAGE, GRADIENT, Composite
from whycluster.deep.lrp.rules import Epsilon, Gamma, LinearMap, Rule, Tensor, ZPlus, is_nothing, parts, ratio
from whycluster.deep.lrp.tape import WEIGHTED, Keep, Operation, Variable

_FAR = 64.0  # a bias that is this much greater costs two digits
_SAMPLED = 4096  # values, to find that
Shares = Iterator[tuple[Variable, Tensor]]


@dataclass(frozen=True)
class LrpContext:
    """How one pass is done.

    Attributes
    ----------
    composite : the user's choices
    rules : the rule of each operation with weights
    reading : what relevance is wanted of; it must not be folded away
    where : which function it is for, for messages
    vanishing : what is known to have no relevance where its value is 0, found on the way
    """

    composite: Composite
    rules: dict[Operation, Rule]
    reading: Variable
    where: str
    vanishing: set[Variable] = field(default_factory=set)


Back = Callable[[Operation, Tensor, LrpContext], Shares]
BackOfAll = Callable[[Operation, list[Tensor | None], LrpContext], Shares]


@dataclass(frozen=True)
class _Entry:
    back: BackOfAll
    keep: Keep


_TABLE: dict[str, _Entry] = {}


def _for_all(names: str, keep: Keep = Keep.NOTHING) -> Callable[[BackOfAll], BackOfAll]:
    """Register a function for operations, by their names; it is given the relevance of all outputs."""

    def register(back: BackOfAll) -> BackOfAll:
        _TABLE.update({name: _Entry(back, keep) for name in names.split()})
        return back

    return register


def _for(names: str, keep: Keep = Keep.NOTHING) -> Callable[[Back], Back]:
    """The same for operations of which only the first output can have relevance, which it is given."""

    def register(back: Back) -> Back:
        def of_first(operation: Operation, relevance: list[Tensor | None], setting: LrpContext) -> Shares:
            R = relevance[0]
            return _unknown(operation, relevance, setting) if R is None else back(operation, R, setting)

        _for_all(names, keep)(of_first)
        return back

    return register


def keeps(name: str) -> Keep:
    """Which values the rule of an operation needs."""
    return _TABLE[name].keep if name in _TABLE else Keep.INPUTS


def go_back(operation: Operation, relevance: list[Tensor | None], setting: LrpContext) -> Shares:
    """The relevance of the inputs of an operation from that of its outputs."""
    entry = _TABLE.get(operation.name)
    back = _unknown if entry is None else entry.back
    return back(operation, relevance, setting)


# ---- with weights


@dataclass(frozen=True, eq=False)
class Convolution(LinearMap):
    """A convolution of any dimension, transposed or not."""

    options: tuple[Any, ...]  # stride, padding, dilation, transposed, output_padding, groups

    def forth(self, a: Tensor, weight: Tensor) -> Tensor:
        """Convolve, without the bias."""
        return torch.ops.aten.convolution(a, weight, None, *self.options)  # type: ignore[no-any-return]

    def back(self, s: Tensor, weight: Tensor) -> Tensor:
        """The adjoint."""
        backward = torch.ops.aten.convolution_backward
        found: Tensor = backward(s, self.a, weight, None, *self.options, [True, False, False])[0]
        return found

    def scaled(self, scale: Tensor, shift: Tensor) -> Convolution | None:
        """With each channel of its outputs scaled and shifted; None for what is too intricate."""
        if self.options[3]:  # transposed: the outputs come second in the weights, group by group
            return None
        bias = shift if self.bias is None else shift + self.bias * scale
        return Convolution(self.a, self.weight * scale[:, None], bias, self.positive, self.options)


@dataclass(frozen=True, eq=False)
class Product(LinearMap):
    """A product of matrices, a w, or of batches of them; with ``left`` it is w a."""

    left: bool

    @property
    def ones(self) -> Tensor:
        """As many as there are inputs: rows need not be inputs of one kind."""
        return torch.ones_like(self.a)

    def forth(self, a: Tensor, weight: Tensor) -> Tensor:
        """Multiply."""
        return weight @ a if self.left else a @ weight

    def back(self, s: Tensor, weight: Tensor) -> Tensor:
        """The adjoint."""
        return weight.mT @ s if self.left else s @ weight.mT

    def scaled(self, scale: Tensor, shift: Tensor) -> Product | None:
        """With each of its outputs scaled and shifted."""
        if self.left or self.a.ndim != 2:  # of batches of matrices, the channels are the rows
            return None
        bias = shift if self.bias is None else shift + self.bias * scale
        return Product(self.a, self.weight * scale, bias, self.positive, self.left)


def is_weighted(operation: Operation) -> bool:
    """Whether an operation is linear in one variable, with weights that do not depend on the input."""
    if len(operation.inputs) != 1:
        return False
    if operation.name == "convolution":
        return isinstance(operation.args[0], Variable)
    if operation.name in ("addmm", "baddbmm"):
        plain = all(operation.kwargs.get(name, 1) == 1 for name in ("beta", "alpha"))
        return plain and not isinstance(operation.args[0], Variable)
    return operation.name in ("mm", "bmm")


def _linear_map(operation: Operation, dtype: torch.dtype) -> Convolution | Product:
    """What a weighted operation computes."""
    (variable,) = operation.inputs
    a, positive = _value(variable, dtype), _is_positive(variable)
    if operation.name == "convolution":
        called = operation.called
        names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
        weight, bias = called["weight"].to(dtype), called["bias"]
        if bias is not None:
            bias = bias.to(dtype).reshape(-1, *[1] * (weight.ndim - 2))
        return Convolution(a, weight, bias, positive, tuple(called[n] for n in names))
    *bias, left, right = operation.args[:3]
    added = bias[0].to(dtype) if bias else None
    if isinstance(left, Variable):
        return Product(a, right.to(dtype), added, positive, left=False)
    return Product(a, left.to(dtype), added, positive, left=True)


def _is_positive(variable: Variable) -> bool:
    """Whether a variable comes from a ReLU, if through operations that keep its values or average them."""
    producer = variable.producer
    if producer is None or producer.name == "relu":
        return producer is not None
    if producer.name == "cat" and not all(isinstance(part, Variable) for part in producer.args[0]):
        return False  # what is put beside it, such as a class token, can be anything
    return producer.name in _KEEPING_SIGNS and all(map(_is_positive, producer.inputs))


_KEEPING_SIGNS = {
    "max_pool2d_with_indices",
    "view",
    "mean",
    "_adaptive_avg_pool2d",
    "avg_pool2d",
    "cat",
    "clone",
}


@_for(" ".join(WEIGHTED), Keep.INPUTS)
def _weighted(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:
    if not is_weighted(operation):
        yield from _product_of_two(operation, R, setting)
        return
    linear = _linear_map(operation, R.dtype)
    yield operation.inputs[0], _shared(operation, operation, linear, R, setting)


def _shared(
    operation: Operation, last: Operation, linear: Convolution | Product, R: Tensor, setting: LrpContext
) -> Tensor:
    """Shares by the rule of a weighted operation; ``last`` is what it was folded into, or itself."""
    rule, variable, output = setting.rules[operation], operation.inputs[0], last.outputs[0]
    assert output is not None
    multiplies = isinstance(rule, (Epsilon, Gamma, ZPlus))  # shares are multiples of the value
    if multiplies and variable.n_uses == 1:
        setting.vanishing.add(variable)
    return rule.share(linear, R, _rectified(output, R, linear.bias, setting), setting.composite.biases)


def _rectified(output: Variable, R: Tensor, bias: Tensor | None, setting: LrpContext) -> Tensor | None:
    """An output without its bias, as a ReLU left it, if there is relevance only where it did not cut off.

    This spares computing the output again. It was not kept: in most networks a ReLU overwrites it.
    """
    if output.n_uses != 1 or output.rectified is None or output.rectified.value is None:
        return None
    value = output.rectified.value
    if value.dtype != R.dtype:
        return None
    if output.rectified not in setting.vanishing and bool(R.masked_fill(value != 0, 0.0).any()):
        return None
    if bias is None:
        return value
    z = value - bias
    return None if _is_buried(z, value, bias) else z


def _is_buried(z: Tensor, value: Tensor, bias: Tensor) -> bool:
    """Whether a bias is so much greater than most of what it was added to that too few digits are left."""
    some = slice(None, None, 1 + z.numel() // _SAMPLED)
    sizes = z.flatten()[some][value.flatten()[some] > 0].abs()
    return bool(sizes.numel() and bias.abs().max() > _FAR * sizes.median())


def _product_of_two(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:
    """A product of two variables: one that weighs is held constant, else both take half."""
    if operation.name not in ("mm", "bmm"):
        yield from _unknown(operation, [R], setting)
        return
    left, right = operation.args[:2]
    pairs = [(left, right, False), (right, left, True)]
    pairs = [pair for pair in pairs if not pair[0].scales] or pairs
    for variable, other, is_right in pairs:
        linear = Product(_value(variable, R.dtype), _value(other, R.dtype), None, False, left=is_right)
        yield variable, Gamma(setting.composite.sums).share(linear, R / len(pairs), None, False)


# ---- values that are moved about


@_for_all(
    "view _unsafe_view _reshape_alias permute transpose t expand slice select unsqueeze squeeze cat "
    "stack split split_with_sizes unsafe_split unsafe_split_with_sizes unbind "
    "constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
    "replication_pad2d replication_pad3d flip roll index index_select gather repeat "
    "repeat_interleave upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d pixel_shuffle pixel_unshuffle channel_shuffle im2col unfold masked_fill where "
    "diagonal tril triu"
)
def _moved(operation: Operation, relevance: list[Tensor | None], setting: LrpContext) -> Shares:  # noqa: ARG001  # no rule
    """Relevance goes the way back that the values came."""
    dtype, device = _kind(relevance)
    stand_ins = {
        v: torch.empty_strided(v.shape, v.stride, dtype=dtype, device=device).requires_grad_()
        for v in operation.inputs
    }
    yield from _pulled(operation, stand_ins, relevance)


@_for("clone _to_copy detach alias lift_fresh")
def _same(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:  # noqa: ARG001  # no rule
    yield operation.inputs[0], R.reshape(operation.inputs[0].shape)


@_for("copy")
def _copied(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:  # noqa: ARG001  # no rule
    """A copy over something: what was there does not matter any more."""
    source = operation.args[1]
    if isinstance(source, Variable):
        yield source, R.sum_to_size(source.shape)


# ---- values that are taken one by one


@_for("relu", Keep.OUTPUT)
@_for(
    "gelu silu leaky_relu elu celu hardswish hardtanh hardsigmoid clamp clamp_min clamp_max tanh sigmoid "
    "softplus mish threshold _prelu_kernel rrelu_with_noise log_sigmoid_forward exp log "
    "log1p expm1 sqrt rsqrt reciprocal pow abs neg sin cos erf atan sinh asinh sign softshrink "
    "hardshrink nan_to_num"
)
def _one_by_one(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:  # noqa: ARG001  # no rule
    yield operation.inputs[0], R.sum_to_size(operation.inputs[0].shape)


# ---- sums


@_for("add sub rsub", Keep.INPUTS)
def _sum(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:
    """Variables share in proportion; what does not depend on the input is a bias, and takes nothing."""
    if len(operation.inputs) == 1:
        yield from _with_constant(operation, R, setting)
        return
    first, second = operation.args[:2]
    factor = operation.called.get("alpha", 1)
    signs = {
        "add": (1, factor),
        "sub": (1, -factor),
        "rsub": (-factor, 1),
    }[operation.name]
    a, b = _value(first, R.dtype) * signs[0], _value(second, R.dtype) * signs[1]
    half, sizes = setting.composite.sums / 2, (a.abs(), b.abs())
    z, total = a + b, half * (sizes[0] + sizes[1])
    equally = R.masked_fill(~is_nothing(z.abs() + total), 0.0) / 2
    u, s = parts(R, z, total, half)
    for variable, value, size in ((first, a, sizes[0]), (second, b, sizes[1])):
        shares = (1 + half) * value * s + half * size * u + equally
        yield variable, shares.sum_to_size(variable.shape)


def _with_constant(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:
    """What is added takes its part if biases do."""
    (variable,) = operation.inputs
    if setting.composite.biases:
        x = _value(variable, R.dtype)
        y = operation.run({variable: x})
        R = (y - operation.run({variable: torch.zeros_like(x)})) * ratio(R, y)
    yield variable, R.sum_to_size(variable.shape)


@_for(
    "mean sum avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d "
    "upsample_linear1d upsample_bilinear2d upsample_trilinear3d _upsample_bilinear2d_aa "
    "cumsum col2im",
    Keep.INPUTS,
)
def _in_proportion(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:
    variable = operation.inputs[0]

    def run(x: Tensor) -> Tensor:
        result: Tensor = operation.run({variable: x})
        return result

    yield variable, _proportional(run, _value(variable, R.dtype), R, setting)


def _proportional(function: Callable[[Tensor], Tensor], x: Tensor, R: Tensor, setting: LrpContext) -> Tensor:
    """Shares of what goes into a linear function of positive weights; equal ones where all of it is 0."""
    half = setting.composite.sums / 2
    y, pull = _differentiable(function, x)
    total = half * function(x.abs())
    nothing = R.masked_fill(~is_nothing(y.abs() + total), 0.0)
    u, s = parts(R, y, total, half)
    shares = (1 + half) * x * pull(s) + half * x.abs() * pull(u)
    if bool(nothing.any()):
        level, pull = _differentiable(function, torch.ones_like(x))
        shares = shares + pull(ratio(nothing, level))
    return shares


# ---- maxima


@_for("max_pool2d_with_indices max_pool3d_with_indices", Keep.INPUTS | Keep.EXTRAS)
def _max_pool(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:
    """The winner takes all, the first of equals; where a window is 0, as behind a ReLU, in equal shares."""
    (variable,), called, n_dims = operation.inputs, operation.called, 3 if "3d" in operation.name else 2
    pool = functional.avg_pool3d if n_dims == 3 else functional.avg_pool2d
    options = (called["kernel_size"], called["stride"] or None, called["padding"], called["ceil_mode"])
    x, has_mean = _value(variable, R.dtype), set(called["dilation"]) == {1}
    if setting.composite.max_pool == AVERAGE:
        if not has_mean:
            yield from _unknown(operation, [R], setting)
            return
        yield variable, _proportional(lambda x: pool(x, *options), x, R, setting)
        return
    indices, flat = operation.extras[0].flatten(-n_dims), R.flatten(-n_dims)
    taken = torch.zeros_like(x.flatten(-n_dims))
    if operation.outputs[0] in setting.vanishing:
        if variable.n_uses == 1:
            setting.vanishing.add(variable)
    elif has_mean:
        off = flat.masked_fill(x.flatten(-n_dims).gather(-1, indices) != 0, 0.0)
        flat = flat - off
        level, pull = _differentiable(lambda x: pool(x, *options), torch.ones_like(x))
        taken += pull(ratio(off.reshape(R.shape), level)).flatten(-n_dims)
    yield variable, taken.scatter_add_(-1, indices, flat).reshape(variable.shape)


@_for("maximum minimum", Keep.INPUTS)
def _greater(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:
    """Of two, the winner; beside a constant there is nothing to win: max(x, 0) is a ReLU."""
    if len(operation.inputs) == 1:
        return _one_by_one(operation, R, setting)
    return _winner(operation, [R], setting)


@_for_all("amax amin max min adaptive_max_pool2d adaptive_max_pool3d topk sort", Keep.INPUTS)
def _winner(operation: Operation, relevance: list[Tensor | None], setting: LrpContext) -> Shares:  # noqa: ARG001  # no rule
    """The winners' relevance goes the way of the gradient; equal ones share."""
    dtype, _ = _kind(relevance)
    values = {v: _value(v, dtype).detach().requires_grad_() for v in operation.inputs}
    yield from _pulled(operation, values, relevance)


# ---- products and normalisation


@_for("mul div", Keep.INPUTS)
def _scaled(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:
    """Of two variables the one that weighs is held constant, and so is what is divided by; else halves."""
    if len(operation.inputs) == 1:
        yield from _one_by_one(operation, R, setting)
        return
    first, second = operation.args[:2]
    takers = [first] if operation.name == "div" else [v for v in (first, second) if not v.scales]
    takers = takers or [first, second]
    for variable in takers:
        yield variable, R.sum_to_size(variable.shape) / len(takers)


@_for(
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_fused_attention_overrideable",
    Keep.INPUTS,
)
def _attention(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:
    """Attention is a mean of the values, whose weights are held constant."""
    called = operation.called
    q, k = (_value(called[name], R.dtype) for name in ("query", "key"))
    n_shared = q.shape[1] // k.shape[1]  # how many heads of queries share keys and values; mostly 1
    k = k.repeat_interleave(n_shared, 1)
    mask = called.get("attn_mask", called.get("attn_bias"))
    if isinstance(mask, Variable) or (mask is not None and mask.is_floating_point()):
        mask = _value(mask, R.dtype)

    def attend(v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(
            q,
            k,
            v.repeat_interleave(n_shared, 1),
            attn_mask=mask,
            is_causal=called["is_causal"],
            scale=called.get("scale"),
        )

    if isinstance(called["value"], Variable):
        yield called["value"], _proportional(attend, _value(called["value"], R.dtype), R, setting)


@_for("native_layer_norm native_group_norm", Keep.INPUTS | Keep.EXTRAS)
def _normalised(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:
    called, shape = operation.called, operation.inputs[0].shape
    if operation.name == "native_group_norm":
        groups: tuple[int, ...] = (shape[0], called["group"])
        per_channel: tuple[int, ...] = (-1, *[1] * (len(shape) - 2))
    else:
        per_channel = tuple(called["normalized_shape"])
        groups = (shape[: -len(per_channel)].numel(), 1)
    scale = operation.extras[1].to(R.dtype).reshape(*groups, 1)
    yield from _in_groups(operation, groups, per_channel, scale, R, setting)


def _in_groups(
    operation: Operation,
    groups: tuple[int, ...],
    per_channel: tuple[int, ...],
    scale: Tensor,
    R: Tensor,
    setting: LrpContext,
) -> Shares:
    """Shares of what is normalised group by group; its parameters are of the shape ``per_channel``."""
    called, (variable,), grouped = operation.called, operation.inputs, (*groups, -1)
    weight, bias = (_parameter(called[name], per_channel, R.dtype) for name in ("weight", "bias"))
    weights = scale * torch.ones_like(R).mul_(1.0 if weight is None else weight).reshape(grouped)
    added = None if bias is None or not setting.composite.biases else bias.expand(R.shape).reshape(grouped)
    x = _value(variable, R.dtype).reshape(grouped)
    yield variable, _centred(x, weights, added, R.reshape(grouped), setting).reshape(variable.shape)


def _centred(x: Tensor, weights: Tensor, bias: Tensor | None, R: Tensor, setting: LrpContext) -> Tensor:
    """Shares of what goes into z = weights * (x - mean of x) + bias, means being along the last axis.

    That is z = C x with C_ii = (1 - 1/n) w_i and C_ij = -w_i / n; of sizes, all entries are positive.
    """
    n, half = x.shape[-1], setting.composite.sums / 2
    sizes, scales = x.abs(), weights.abs()
    z = weights * (x - x.mean(-1, keepdim=True))
    total = scales * ((1 - 2 / n) * sizes + sizes.mean(-1, keepdim=True))
    if bias is not None:
        z, total = z + bias, total + bias.abs()
    u, s = parts(R, z, total * half, half)
    s, u = s * weights, u * scales
    along = s - s.mean(-1, keepdim=True)
    sized = (1 - 2 / n) * u + u.mean(-1, keepdim=True)
    return (1 + half) * x * along + half * sizes * sized


@_for(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm "
    "miopen_batch_norm",
    Keep.INPUTS,
)
def _batch_norm(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:
    """A scale for each channel; the weights of the operation before it, if there is one, are scaled by it."""
    variable = operation.inputs[0]
    if operation.called.get("training", False):
        yield from _own_statistics(operation, R, setting)
        return
    shape = (-1, *[1] * (R.ndim - 2))
    scale, shift = (part.reshape(shape) for part in _batch_scale(operation.called, R.dtype))
    before = variable.producer
    if (
        before is not None
        and variable.n_uses == 1
        and variable is not setting.reading
        and is_weighted(before)
    ):
        folded = _linear_map(before, R.dtype).scaled(scale, shift)
        if folded is not None:
            yield before.inputs[0], _shared(before, operation, folded, R, setting)
            return
    if setting.composite.biases:
        x = _value(variable, R.dtype) * scale
        R = x * ratio(R, x + shift)
    yield variable, R


def _batch_scale(called: dict[str, Any], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The scale of each channel, and what is added to it."""
    mean, var = (called[name].to(dtype) for name in ("running_mean", "running_var"))
    scale = (var + _eps(called)).rsqrt()
    if called["weight"] is not None:
        scale = scale * called["weight"].to(dtype)
    shift = -mean * scale
    if called["bias"] is not None:
        shift = shift + called["bias"].to(dtype)
    return scale, shift


def _eps(called: dict[str, Any]) -> float:
    """What is added to a variance; libraries name it differently."""
    return float(called["eps"] if "eps" in called else called["epsilon"])


def _own_statistics(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:
    """Normalised by its own mean and deviation, channel by channel, as InstanceNorm does."""
    variable = operation.inputs[0]
    if variable.shape[0] != 1:  # InstanceNorm makes one batch of all images, and channels of their channels
        yield from _unknown(operation, [R], setting)
        return
    x = _value(variable, R.dtype).flatten(2)
    scale = (x.var(-1, unbiased=False, keepdim=True) + _eps(operation.called)).rsqrt()
    per_channel = (-1, *[1] * (R.ndim - 2))
    yield from _in_groups(operation, (1, variable.shape[1]), per_channel, scale, R, setting)


@_for("glu")
def _gated(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:  # noqa: ARG001  # no rule
    """The first half times a gate, the sigmoid of the second, which is held constant."""
    yield operation.inputs[0], torch.cat([R, torch.zeros_like(R)], dim=operation.called["dim"])


@_for("embedding")
def _looked_up(operation: Operation, R: Tensor, setting: LrpContext) -> Shares:  # noqa: ARG001  # no rule
    """What stands in a table has no inputs of its own."""
    return iter(())


# ---- anything else


def _unknown(operation: Operation, relevance: list[Tensor | None], setting: LrpContext) -> Shares:
    place = f" (module {operation.module!r})" if operation.module else ""
    begin = f"{setting.where}: there is no rule for the operation {operation.name!r} of the encoder{place}"
    if setting.composite.unknown != GRADIENT:
        raise UnsupportedModelError(
            f"{begin}. Take the features from a layer below it (layer=...), write it with operations that "
            'have one, or allow its gradient in place of a rule: Composite(..., unknown="gradient").'
        )
    warnings.warn(
        f"{begin}; its relevance is shared by the products of inputs and gradient, and need not add up.",
        GradientWarning,
        stacklevel=2,
    )
    dtype, _ = _kind(relevance)
    values = {v: _value(v, dtype).detach().requires_grad_() for v in operation.inputs}
    with torch.enable_grad():
        outputs = _listed(operation.run(values))
    seeds = [None if R is None else ratio(R, y.detach()) for R, y in zip(relevance, outputs, strict=False)]
    for variable, gradient in _gradients(values, outputs, seeds):
        yield variable, gradient * values[variable].detach()


def _pulled(operation: Operation, values: dict[Variable, Tensor], relevance: list[Tensor | None]) -> Shares:
    """Relevance as the gradient of the operation carries it, not multiplied with anything."""
    with torch.enable_grad():
        outputs = _listed(operation.run(values))
    yield from _gradients(values, outputs, relevance)


def _gradients(values: dict[Variable, Tensor], outputs: list[Tensor], seeds: list[Tensor | None]) -> Shares:
    pairs = [
        (y, seed) for y, seed in zip(outputs, seeds, strict=False) if seed is not None and y.requires_grad
    ]
    if not pairs:
        return
    ys, given = zip(*pairs, strict=True)
    gradients = torch.autograd.grad(ys, list(values.values()), given, allow_unused=True)
    for variable, gradient in zip(values, gradients, strict=True):
        if gradient is not None:
            yield variable, gradient


def _differentiable(
    function: Callable[[Tensor], Tensor], x: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The value of a function, and its adjoint there."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        y = function(x)
    return y.detach(), lambda s: torch.autograd.grad(y, x, s, retain_graph=True)[0]


def _listed(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _kind(relevance: list[Tensor | None]) -> tuple[torch.dtype, torch.device]:
    some = next(R for R in relevance if R is not None)
    return some.dtype, some.device


def _value(variable: Any, dtype: torch.dtype) -> Tensor:
    """The value of a variable, or a constant, in the dtype of relevance."""
    if not isinstance(variable, Variable):
        return torch.as_tensor(variable).to(dtype)
    assert variable.value is not None
    return variable.value.to(dtype)


def _parameter(values: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
    return None if values is None else values.to(dtype).reshape(shape)
