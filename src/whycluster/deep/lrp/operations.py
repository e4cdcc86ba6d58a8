"""Handlers that propagate relevance from the outputs of each forward operation to its inputs.

Linear operations with weights use the rules of the composite. All other operations use a fixed handler:

- Operations that move values (reshaping, slicing, padding) move relevance back.
- Elementwise operations (activations, scaling, adding constants) leave relevance where it is.
- Sums and means of values that depend on the input distribute relevance in proportion to these values, or
  equally where all of them are 0.
- Maxima pass all relevance to the winner.
- Products treat the factor that only scales or weights (attention, gates, lengths) as constant.
- Normalizations treat the deviation that they divide by as constant.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from whycluster.core.errors import GradientWarning, UnsupportedModelError
from whycluster.deep.lrp.composites import AVERAGE, GRADIENT, Composite
from whycluster.deep.lrp.rules import (
    Epsilon,
    Gamma,
    LinearOperation,
    Rule,
    Tensor,
    ZPlus,
    gamma_ratios,
    is_negligible,
    safe_divide,
)
from whycluster.deep.lrp.tape import WEIGHTED, Keep, Operation, Variable

_LARGE_BIAS = 64.0  # subtracting a bias that exceeds the result by this factor loses two accurate digits
_N_SAMPLED = 4096  # number of values that are compared with the bias
Shares = Iterator[tuple[Variable, Tensor]]


@dataclass(frozen=True)
class LrpContext:
    """The settings of one backward pass.

    Attributes
    ----------
    composite : the rules that the user chose
    rules : the rule for each operation with weights
    target : the variable whose relevance is requested; no batch norm may be folded across it
    where : the public function that was called, for messages
    n_inputs : the number of inputs in the batch
    lost : the relevance that constants get, by the kind of constant, (n,) each; None if it is not requested
    vanishing : variables that are known to have no relevance where their value is 0
    """

    composite: Composite
    rules: dict[Operation, Rule]
    target: Variable
    where: str
    n_inputs: int
    lost: dict[str, Tensor] | None = None
    vanishing: set[Variable] = field(default_factory=set)


Handler = Callable[[Operation, Tensor, LrpContext], Shares]
MultiHandler = Callable[[Operation, list[Tensor | None], LrpContext], Shares]


@dataclass(frozen=True)
class _Entry:
    handler: MultiHandler
    keep: Keep


_HANDLERS: dict[str, _Entry] = {}


def _handles_outputs_of(names: str, keep: Keep = Keep.NOTHING) -> Callable[[MultiHandler], MultiHandler]:
    """Register, for these operations, a handler that receives the relevance of all outputs."""

    def register(handler: MultiHandler) -> MultiHandler:
        _HANDLERS.update({name: _Entry(handler, keep) for name in names.split()})
        return handler

    return register


def _handles(
    names: str, keep: Keep = Keep.NOTHING, *, with_constant: Handler | None = None
) -> Callable[[Handler], Handler]:
    """Register, for these operations, a handler that receives the relevance of the first output only.

    If ``with_constant`` is given, it is the handler for operations between a variable and a constant.
    """

    def register(handler: Handler) -> Handler:
        def handle_first(operation: Operation, relevance: list[Tensor | None], context: LrpContext) -> Shares:
            R = relevance[0]
            if R is None:
                return _unknown(operation, relevance, context)
            if with_constant is not None and len(operation.inputs) == 1:
                return with_constant(operation, R, context)
            return handler(operation, R, context)

        _handles_outputs_of(names, keep)(handle_first)
        return handler

    return register


def keeps(name: str) -> Keep:
    """Return the values that the handler of an operation needs."""
    return _HANDLERS[name].keep if name in _HANDLERS else Keep.INPUTS


def propagate_through(operation: Operation, relevance: list[Tensor | None], context: LrpContext) -> Shares:
    """Yield each input of an operation with its relevance, given the relevance of the outputs."""
    entry = _HANDLERS.get(operation.name)
    handler = _unknown if entry is None else entry.handler
    return handler(operation, relevance, context)


# ---- Linear operations with weights


@dataclass(frozen=True, eq=False)
class Convolution(LinearOperation):
    """A convolution of any dimension, possibly transposed."""

    options: tuple[Any, ...]  # stride, padding, dilation, transposed, output_padding, groups

    def forward(self, a: Tensor, weight: Tensor) -> Tensor:
        """Convolve, without the bias."""
        return torch.ops.aten.convolution(a, weight, None, *self.options)  # type: ignore[no-any-return]

    def adjoint(self, s: Tensor, weight: Tensor) -> Tensor:
        """Apply the adjoint convolution."""
        backward = torch.ops.aten.convolution_backward
        found: Tensor = backward(s, self.a, weight, None, *self.options, [True, False, False])[0]
        return found

    def scaled(self, scale: Tensor, shift: Tensor) -> Convolution | None:
        """Return a copy with scaled and shifted output channels, or None if the convolution is transposed."""
        if self.options[3]:  # if transposed, output channels are the second axis of the weights, per group
            return None
        bias = shift if self.bias is None else shift + self.bias * scale
        return Convolution(self.a, self.weight * scale[:, None], bias, self.positive, self.options)


@dataclass(frozen=True, eq=False)
class MatrixProduct(LinearOperation):
    """A matrix product a w, or w a if the weights are on the ``left``, possibly batched."""

    left: bool

    @property
    def ones(self) -> Tensor:
        """An input of ones in the full shape of ``a``, since rows may have different weights."""
        return torch.ones_like(self.a)

    def forward(self, a: Tensor, weight: Tensor) -> Tensor:
        """Multiply, without the bias."""
        return weight @ a if self.left else a @ weight

    def adjoint(self, s: Tensor, weight: Tensor) -> Tensor:
        """Multiply by the transposed weights."""
        return weight.mT @ s if self.left else s @ weight.mT

    def scaled(self, scale: Tensor, shift: Tensor) -> MatrixProduct | None:
        """Return a copy with scaled and shifted outputs, or None if the channels are rows of matrices."""
        if self.left or self.a.ndim != 2:  # in batches of matrices, the channels are the rows
            return None
        bias = shift if self.bias is None else shift + self.bias * scale
        return MatrixProduct(self.a, self.weight * scale, bias, self.positive, self.left)


def is_weighted(operation: Operation) -> bool:
    """Return whether an operation is linear in one variable, with weights independent of the input."""
    if len(operation.inputs) != 1:
        return False
    if operation.name == "convolution":
        return isinstance(operation.args[0], Variable)
    if operation.name in ("addmm", "baddbmm"):
        plain = all(operation.kwargs.get(name, 1) == 1 for name in ("beta", "alpha"))
        return plain and not isinstance(operation.args[0], Variable)
    return operation.name in ("mm", "bmm")


def _linear_operation(operation: Operation, dtype: torch.dtype) -> Convolution | MatrixProduct:
    """Return a weighted operation as a linear operation of its input."""
    (variable,) = operation.inputs
    a, positive = _value(variable, dtype), _is_positive(variable)
    if operation.name == "convolution":
        arguments = operation.arguments
        names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
        weight, bias = arguments["weight"].to(dtype), arguments["bias"]
        if bias is not None:
            bias = bias.to(dtype).reshape(-1, *[1] * (weight.ndim - 2))
        return Convolution(a, weight, bias, positive, tuple(arguments[n] for n in names))
    *bias, left, right = operation.args[:3]
    added = bias[0].to(dtype) if bias else None
    if isinstance(left, Variable):
        return MatrixProduct(a, right.to(dtype), added, positive, left=False)
    return MatrixProduct(a, left.to(dtype), added, positive, left=True)


def _is_positive(variable: Variable) -> bool:
    """Return whether a variable comes from a ReLU, directly or through operations that keep signs."""
    producer = variable.producer
    if producer is None or producer.name == "relu":
        return producer is not None
    if producer.name == "cat" and not all(isinstance(part, Variable) for part in producer.args[0]):
        return False  # concatenated constants, such as a class token, may be negative
    return producer.name in _SIGN_PRESERVING and all(map(_is_positive, producer.inputs))


_SIGN_PRESERVING = {
    "max_pool2d_with_indices",
    "view",
    "mean",
    "_adaptive_avg_pool2d",
    "avg_pool2d",
    "cat",
    "clone",
}


@_handles(" ".join(WEIGHTED), Keep.INPUTS)
def _weighted(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    if not is_weighted(operation):
        yield from _product_of_variables(operation, R, context)
        return
    linear = _linear_operation(operation, R.dtype)
    yield operation.inputs[0], _apply_rule(operation, operation, linear, R, context)


def _apply_rule(
    operation: Operation, last: Operation, linear: LinearOperation, R: Tensor, context: LrpContext
) -> Tensor:
    """Apply the rule of a weighted operation.

    ``last`` is the batch norm that was folded into the operation, or the operation itself if there is none.
    """
    rule, variable, output = context.rules[operation], operation.inputs[0], last.outputs[0]
    assert output is not None
    multiplies = isinstance(rule, (Epsilon, Gamma, ZPlus))  # relevance is a multiple of the input value
    if multiplies and variable.n_uses == 1:
        context.vanishing.add(variable)
    z = _output_from_relu(output, R, linear.bias, context)
    return rule.propagate(linear, R, z, context.composite.biases)


def _output_from_relu(output: Variable, R: Tensor, bias: Tensor | None, context: LrpContext) -> Tensor | None:
    """Derive an output, without its bias, from the ReLU after it; return None if that is impossible.

    This is possible only if there is no relevance where the ReLU is 0. Most networks overwrite the output
    with the result of the ReLU, so the output is not kept. Deriving the output avoids computing it again.
    """
    if output.n_uses != 1 or output.rectified is None or output.rectified.value is None:
        return None
    value = output.rectified.value
    if value.dtype != R.dtype:
        return None
    if output.rectified not in context.vanishing and bool(R.masked_fill(value != 0, 0.0).any()):
        return None
    if bias is None:
        return value
    z = value - bias
    return None if _is_imprecise(z, value, bias) else z


def _is_imprecise(z: Tensor, value: Tensor, bias: Tensor) -> bool:
    """Return whether subtracting a large bias left too few accurate digits in most values."""
    sample = slice(None, None, 1 + z.numel() // _N_SAMPLED)
    magnitudes = z.flatten()[sample][value.flatten()[sample] > 0].abs()
    return bool(magnitudes.numel() and bias.abs().max() > _LARGE_BIAS * magnitudes.median())


def _product_of_variables(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    """If one factor only weights the other, treat it as constant; otherwise, split relevance equally."""
    if operation.name not in ("mm", "bmm"):
        yield from _unknown(operation, [R], context)
        return
    left, right = operation.args[:2]
    pairs = [(left, right, False), (right, left, True)]
    pairs = [pair for pair in pairs if not pair[0].scales] or pairs
    for variable, other, is_right in pairs:
        linear = MatrixProduct(_value(variable, R.dtype), _value(other, R.dtype), None, False, left=is_right)
        yield variable, Gamma(context.composite.sums).propagate(linear, R / len(pairs), None, False)


# ---- Operations that move values


@_handles_outputs_of(
    "view _unsafe_view _reshape_alias permute transpose t expand slice select unsqueeze squeeze cat "
    "stack split split_with_sizes unsafe_split unsafe_split_with_sizes unbind "
    "constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
    "replication_pad2d replication_pad3d flip roll index index_select gather repeat "
    "repeat_interleave upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d pixel_shuffle pixel_unshuffle channel_shuffle im2col unfold masked_fill where "
    "diagonal tril triu"
)
def _moved(operation: Operation, relevance: list[Tensor | None], context: LrpContext) -> Shares:
    """Move relevance back to where the values came from."""
    like = _first(relevance)
    if operation.name == "cat" and context.lost is not None:
        _note_constants(operation, like, context)
    placeholders = {
        v: torch.empty_strided(v.shape, v.stride, dtype=like.dtype, device=like.device).requires_grad_()
        for v in operation.inputs
    }
    yield from _gradients(placeholders, _run(operation, placeholders), relevance)


CLASS_TOKEN = "class token"


def _note_constants(operation: Operation, R: Tensor, context: LrpContext) -> None:
    """Record the relevance of constants that are concatenated to the input, such as a class token."""
    assert context.lost is not None
    parts, dim = operation.args[0], operation.arguments["dim"]
    sizes = [part.shape[dim] for part in parts if len(part.shape) == R.ndim]
    if len(R) != context.n_inputs or dim % R.ndim == 0 or len(sizes) != len(parts):
        return
    for part, values in zip(parts, torch.split(R, sizes, dim), strict=True):
        if not isinstance(part, Variable):
            found = values.flatten(1).sum(1)
            context.lost[CLASS_TOKEN] = context.lost.get(CLASS_TOKEN, 0.0) + found


@_handles("as_strided")
def _strided(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    """Move relevance back to the values in the storage that the strides select."""
    (variable,), arguments = operation.inputs, operation.arguments
    asked = arguments["storage_offset"]
    start = 0 if asked is None else asked - variable.offset
    if start < 0:  # values before the first one of the variable
        yield from _unknown(operation, [R], context)
        return
    x = torch.empty_strided(variable.shape, variable.stride, dtype=R.dtype, device=R.device).requires_grad_()
    with torch.enable_grad():
        y = torch.as_strided(x, arguments["size"], arguments["stride"], start)
    yield from _gradients({variable: x}, [y], [R])


@_handles("clone _to_copy detach alias lift_fresh")
def _unchanged(operation: Operation, R: Tensor, context: LrpContext) -> Shares:  # noqa: ARG001  # independent of the rules
    yield operation.inputs[0], R.reshape(operation.inputs[0].shape)


@_handles("copy")
def _copied(operation: Operation, R: Tensor, context: LrpContext) -> Shares:  # noqa: ARG001  # independent of the rules
    """Propagate to the source of a copy, ignoring the values that the copy overwrites."""
    source = operation.args[1]
    if isinstance(source, Variable):
        yield source, R.sum_to_size(source.shape)


# ---- Elementwise operations


@_handles("relu", Keep.OUTPUT)
@_handles(
    "gelu silu leaky_relu elu celu hardswish hardtanh hardsigmoid clamp clamp_min clamp_max tanh sigmoid "
    "softplus mish threshold _prelu_kernel rrelu_with_noise log_sigmoid_forward exp log "
    "log1p expm1 sqrt rsqrt reciprocal pow abs neg sin cos erf atan sinh asinh sign softshrink "
    "hardshrink nan_to_num"
)
def _elementwise(operation: Operation, R: Tensor, context: LrpContext) -> Shares:  # noqa: ARG001  # independent of the rules
    yield operation.inputs[0], R.sum_to_size(operation.inputs[0].shape)


# ---- Sums and means


def _add_constant(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    """Assign the relevance to the variable. The constant receives a share only if the biases do."""
    (variable,) = operation.inputs
    if context.composite.biases:
        x = _value(variable, R.dtype)
        y = operation.run({variable: x})
        R = (y - operation.run({variable: torch.zeros_like(x)})) * safe_divide(R, y)
    yield variable, R.sum_to_size(variable.shape)


@_handles("add sub rsub", Keep.INPUTS, with_constant=_add_constant)
def _sum(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    """Distribute relevance between two variables in proportion to their values."""
    first, second = operation.args[:2]
    factor = operation.arguments.get("alpha", 1)
    signs = {
        "add": (1, factor),
        "sub": (1, -factor),
        "rsub": (-factor, 1),
    }[operation.name]
    a, b = _value(first, R.dtype) * signs[0], _value(second, R.dtype) * signs[1]
    for variable, shares in zip((first, second), _split_sum(a, b, R, context), strict=True):
        yield variable, shares.sum_to_size(variable.shape)


def _split_sum(a: Tensor, b: Tensor, R: Tensor, context: LrpContext) -> tuple[Tensor, Tensor]:
    """Distribute the relevance of a + b between the terms, in the shape of the sum."""
    half, magnitudes = context.composite.sums / 2, (a.abs(), b.abs())
    z, total = a + b, half * (magnitudes[0] + magnitudes[1])
    equal_shares = R.masked_fill(~is_negligible(z.abs() + total), 0.0) / 2
    u, s = gamma_ratios(R, z, total, half)
    return tuple(  # type: ignore[return-value]  # of two terms
        (1 + half) * value * s + half * magnitude * u + equal_shares
        for value, magnitude in zip((a, b), magnitudes, strict=True)
    )


@_handles("addcmul", Keep.INPUTS)
def _add_product(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    """Propagate through a + factor * b * c, as through a sum and then through a product."""
    base, *factors = operation.args[:3]
    a, b, c = (_value(each, R.dtype) for each in operation.args[:3])
    product = operation.arguments["value"] * b * c
    variables = [v for v in factors if isinstance(v, Variable)]
    if isinstance(base, Variable) and variables:
        of_base, R = _split_sum(a, product, R, context)
    elif isinstance(base, Variable):
        of_base = R * a * safe_divide(torch.ones_like(R), a + product) if context.composite.biases else R
    elif context.composite.biases:
        R = R * product * safe_divide(torch.ones_like(R), a + product)
    if isinstance(base, Variable):
        yield base, of_base.sum_to_size(base.shape)
    yield from _equal_shares([v for v in variables if not v.scales] or variables, R)


@_handles(
    "mean sum avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d "
    "upsample_linear1d upsample_bilinear2d upsample_trilinear3d _upsample_bilinear2d_aa "
    "cumsum col2im",
    Keep.INPUTS,
)
def _mean(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    variable = operation.inputs[0]

    def run(x: Tensor) -> Tensor:
        result: Tensor = operation.run({variable: x})
        return result

    yield variable, _proportional(run, _value(variable, R.dtype), R, context)


def _proportional(function: Callable[[Tensor], Tensor], x: Tensor, R: Tensor, context: LrpContext) -> Tensor:
    """Distribute relevance among the inputs of a linear function with positive weights.

    Shares are proportional to the inputs, or equal where all inputs of an output are 0.
    """
    half = context.composite.sums / 2
    y, adjoint = _with_adjoint(function, x)
    total = half * function(x.abs())
    remainder = R.masked_fill(~is_negligible(y.abs() + total), 0.0)
    u, s = gamma_ratios(R, y, total, half)
    shares = (1 + half) * x * adjoint(s) + half * x.abs() * adjoint(u)
    if bool(remainder.any()):
        weight_sums, adjoint = _with_adjoint(function, torch.ones_like(x))
        shares = shares + adjoint(safe_divide(remainder, weight_sums))
    return shares


# ---- Maxima


@_handles("max_pool2d_with_indices max_pool3d_with_indices", Keep.INPUTS | Keep.EXTRAS)
def _max_pool(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    """Pass relevance to the maximum of each window or, on a tie, to the first maximum.

    In windows of zeros, as after a ReLU, all values receive equal shares. A composite may request average
    pooling instead.
    """
    (variable,), arguments, n_dims = operation.inputs, operation.arguments, 3 if "3d" in operation.name else 2
    pool = functional.avg_pool3d if n_dims == 3 else functional.avg_pool2d
    kernel_size, stride = arguments["kernel_size"], arguments["stride"] or None
    options = (kernel_size, stride, arguments["padding"], arguments["ceil_mode"])
    x, has_mean = _value(variable, R.dtype), set(arguments["dilation"]) == {1}
    if context.composite.max_pool == AVERAGE:
        if not has_mean:
            yield from _unknown(operation, [R], context)
            return
        yield variable, _proportional(lambda x: pool(x, *options), x, R, context)
        return
    indices, flat = operation.extras[0].flatten(-n_dims), R.flatten(-n_dims)
    result = torch.zeros_like(x.flatten(-n_dims))
    if operation.outputs[0] in context.vanishing:
        if variable.n_uses == 1:
            context.vanishing.add(variable)
    elif has_mean:
        off = flat.masked_fill(x.flatten(-n_dims).gather(-1, indices) != 0, 0.0)
        flat = flat - off
        weight_sums, adjoint = _with_adjoint(lambda x: pool(x, *options), torch.ones_like(x))
        result += adjoint(safe_divide(off.reshape(R.shape), weight_sums)).flatten(-n_dims)
    yield variable, result.scatter_add_(-1, indices, flat).reshape(variable.shape)


@_handles("maximum minimum", Keep.INPUTS, with_constant=_elementwise)
def _maximum(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    """Pass relevance to the winner of each pair of values, with equal shares for ties."""
    return _winner(operation, [R], context)


@_handles_outputs_of("amax amin max min adaptive_max_pool2d adaptive_max_pool3d topk sort", Keep.INPUTS)
def _winner(operation: Operation, relevance: list[Tensor | None], context: LrpContext) -> Shares:  # noqa: ARG001  # independent of the rules
    """Pass relevance to the winners, as the gradient does, with equal shares for ties."""
    values = _leaves(operation, relevance)
    yield from _gradients(values, _run(operation, values), relevance)


# ---- Products and normalizations


@_handles("mul div", Keep.INPUTS, with_constant=_elementwise)
def _multiply(operation: Operation, R: Tensor, context: LrpContext) -> Shares:  # noqa: ARG001  # independent of the rules
    """Treat a divisor, or a factor that only weights the other factor, as constant; else, split relevance."""
    first, second = operation.args[:2]
    factors = [first] if operation.name == "div" else [v for v in (first, second) if not v.scales]
    yield from _equal_shares(factors or [first, second], R)


def _equal_shares(factors: Sequence[Variable], R: Tensor) -> Shares:
    """Split the relevance of a product equally among some of its factors."""
    return ((factor, R.sum_to_size(factor.shape) / len(factors)) for factor in factors)


@_handles(
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_fused_attention_overrideable",
    Keep.INPUTS,
)
def _attention(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    """Treat attention as a weighted mean of the values, with constant weights."""
    arguments = operation.arguments
    q, k = (_value(arguments[name], R.dtype) for name in ("query", "key"))
    n_shared = q.shape[1] // k.shape[1]  # number of query heads that share keys and values, usually 1
    k = k.repeat_interleave(n_shared, 1)
    mask = arguments.get("attn_mask", arguments.get("attn_bias"))
    if isinstance(mask, Variable) or (mask is not None and mask.is_floating_point()):
        mask = _value(mask, R.dtype)

    def attend(v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(
            q,
            k,
            v.repeat_interleave(n_shared, 1),
            attn_mask=mask,
            is_causal=arguments["is_causal"],
            scale=arguments.get("scale"),
        )

    values = arguments["value"]
    if isinstance(values, Variable):
        yield values, _proportional(attend, _value(values, R.dtype), R, context)


@_handles("native_layer_norm native_group_norm", Keep.INPUTS | Keep.EXTRAS)
def _normalize(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    arguments, shape = operation.arguments, operation.inputs[0].shape
    if operation.name == "native_group_norm":
        groups: tuple[int, ...] = (shape[0], arguments["group"])
        per_channel: tuple[int, ...] = (-1, *[1] * (len(shape) - 2))
    else:
        per_channel = tuple(arguments["normalized_shape"])
        groups = (shape[: -len(per_channel)].numel(), 1)
    scale = operation.extras[1].to(R.dtype).reshape(*groups, 1)
    yield from _normalize_groups(operation, groups, per_channel, scale, R, context)


def _normalize_groups(
    operation: Operation,
    groups: tuple[int, ...],
    per_channel: tuple[int, ...],
    scale: Tensor,
    R: Tensor,
    context: LrpContext,
) -> Shares:
    """Propagate through a normalization of each group; weights and biases have shape ``per_channel``."""
    arguments, (variable,), grouped = operation.arguments, operation.inputs, (*groups, -1)
    weight, bias = (_reshape(arguments[name], per_channel, R.dtype) for name in ("weight", "bias"))
    weights = scale * torch.ones_like(R).mul_(1.0 if weight is None else weight).reshape(grouped)
    added = None if bias is None or not context.composite.biases else bias.expand(R.shape).reshape(grouped)
    x = _value(variable, R.dtype).reshape(grouped)
    yield variable, _center(x, weights, added, R.reshape(grouped), context).reshape(variable.shape)


def _center(x: Tensor, weights: Tensor, bias: Tensor | None, R: Tensor, context: LrpContext) -> Tensor:
    """Propagate through z = weights * (x - mean(x)) + bias, with means along the last axis.

    The linear part is C x, with C_ii = (1 - 1/n) w_i and C_ij = -w_i / n. The sums of absolute values use
    |C|.
    """
    n, half = x.shape[-1], context.composite.sums / 2
    magnitudes, scales = x.abs(), weights.abs()
    z = weights * (x - x.mean(-1, keepdim=True))
    total = scales * ((1 - 2 / n) * magnitudes + magnitudes.mean(-1, keepdim=True))
    if bias is not None:
        z, total = z + bias, total + bias.abs()
    u, s = gamma_ratios(R, z, total * half, half)
    s, u = s * weights, u * scales
    signed = s - s.mean(-1, keepdim=True)
    unsigned = (1 - 2 / n) * u + u.mean(-1, keepdim=True)
    return (1 + half) * x * signed + half * magnitudes * unsigned


@_handles(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training cudnn_batch_norm "
    "miopen_batch_norm",
    Keep.INPUTS,
)
def _batch_norm(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    """Fold each channel's scale into the preceding linear operation.

    If that is impossible, treat the scale as an elementwise operation.
    """
    variable = operation.inputs[0]
    if operation.arguments.get("training", False):
        yield from _instance_norm(operation, R, context)
        return
    shape = (-1, *[1] * (R.ndim - 2))
    scale, shift = (part.reshape(shape) for part in _batch_scale(operation.arguments, R.dtype))
    before = variable.producer
    if before is not None and variable.n_uses == 1 and variable is not context.target and is_weighted(before):
        folded = _linear_operation(before, R.dtype).scaled(scale, shift)
        if folded is not None:
            yield before.inputs[0], _apply_rule(before, operation, folded, R, context)
            return
    if context.composite.biases:
        x = _value(variable, R.dtype) * scale
        R = x * safe_divide(R, x + shift)
    yield variable, R


def _batch_scale(arguments: dict[str, Any], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the scale and the shift of each channel."""
    mean, var = (arguments[name].to(dtype) for name in ("running_mean", "running_var"))
    scale = (var + _epsilon(arguments)).rsqrt()
    if arguments["weight"] is not None:
        scale = scale * arguments["weight"].to(dtype)
    shift = -mean * scale
    if arguments["bias"] is not None:
        shift = shift + arguments["bias"].to(dtype)
    return scale, shift


def _epsilon(arguments: dict[str, Any]) -> float:
    """Return the constant that is added to the variance. Its argument name depends on the operator."""
    return float(arguments["eps"] if "eps" in arguments else arguments["epsilon"])


def _instance_norm(operation: Operation, R: Tensor, context: LrpContext) -> Shares:
    """Propagate through a normalization of each channel by its own mean and standard deviation."""
    variable = operation.inputs[0]
    if variable.shape[0] != 1:  # InstanceNorm runs one batch with the channels of all images
        yield from _unknown(operation, [R], context)
        return
    x = _value(variable, R.dtype).flatten(2)
    scale = (x.var(-1, unbiased=False, keepdim=True) + _epsilon(operation.arguments)).rsqrt()
    per_channel = (-1, *[1] * (R.ndim - 2))
    yield from _normalize_groups(operation, (1, variable.shape[1]), per_channel, scale, R, context)


@_handles("glu")
def _glu(operation: Operation, R: Tensor, context: LrpContext) -> Shares:  # noqa: ARG001  # independent of the rules
    """Propagate to the first half, with the gate (the sigmoid of the second half) as a constant."""
    yield operation.inputs[0], torch.cat([R, torch.zeros_like(R)], dim=operation.arguments["dim"])


@_handles("embedding")
def _embedding(operation: Operation, R: Tensor, context: LrpContext) -> Shares:  # noqa: ARG001  # independent of the rules
    """Yield nothing, since the entries of an embedding table do not depend on the input."""
    return iter(())


# ---- Operations without a handler


def _unknown(operation: Operation, relevance: list[Tensor | None], context: LrpContext) -> Shares:
    module = f" (module {operation.module!r})" if operation.module else ""
    problem = f"{context.where}: there is no rule for the operation {operation.name!r} of the encoder{module}"
    if context.composite.unknown != GRADIENT:
        raise UnsupportedModelError(
            f"{problem}. Take the features from an earlier layer (layer=...), replace the operation with "
            "operations that have a rule, or use its gradient instead of a rule: Composite(..., "
            'unknown="gradient").'
        )
    warnings.warn(
        f"{problem}; its relevance is distributed in proportion to input times gradient and may not add up.",
        GradientWarning,
        stacklevel=2,
    )
    values = _leaves(operation, relevance)
    outputs = _run(operation, values)
    seeds = [
        None if R is None else safe_divide(R, y.detach()) for R, y in zip(relevance, outputs, strict=False)
    ]
    for variable, gradient in _gradients(values, outputs, seeds):
        yield variable, gradient * values[variable].detach()


# ---- Gradients of single operations


def _leaves(operation: Operation, relevance: list[Tensor | None]) -> dict[Variable, Tensor]:
    """Return the inputs of an operation as tensors that require gradients, in the dtype of the relevance."""
    dtype = _first(relevance).dtype
    return {v: _value(v, dtype).detach().requires_grad_() for v in operation.inputs}


def _run(operation: Operation, values: dict[Variable, Tensor]) -> list[Tensor]:
    """Run an operation on these inputs, with gradients, and return its outputs."""
    with torch.enable_grad():
        result = operation.run(values)
    return [result] if isinstance(result, torch.Tensor) else list(result)


def _gradients(values: dict[Variable, Tensor], outputs: list[Tensor], seeds: list[Tensor | None]) -> Shares:
    """Yield, for each input, the gradient of the sum of the outputs times the seeds."""
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


def _with_adjoint(
    function: Callable[[Tensor], Tensor], x: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the value of a function and the adjoint of its derivative at ``x``."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        y = function(x)
    return y.detach(), lambda s: torch.autograd.grad(y, x, s, retain_graph=True)[0]


def _first(relevance: list[Tensor | None]) -> Tensor:
    return next(R for R in relevance if R is not None)


def _value(variable: Any, dtype: torch.dtype) -> Tensor:
    """Return the value of a variable or a constant, in the dtype of the relevance."""
    if not isinstance(variable, Variable):
        return torch.as_tensor(variable).to(dtype)
    assert variable.value is not None
    return variable.value.to(dtype)


def _reshape(values: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
    return None if values is None else values.to(dtype).reshape(shape)
