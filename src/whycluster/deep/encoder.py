"""The encoder, a torch module that maps inputs to features in batches, with checks of inputs and features."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parameter import is_lazy

from whycluster.core.errors import InvalidInputError, WhyClusterError
from whycluster.data.opening import column_names
from whycluster.data.progress import Progress
from whycluster.data.validation import check_integer
from whycluster.deep.explanation import channel_axis
from whycluster.deep.lrp.propagation import Trace, first_tensor, trace
from whycluster.deep.lrp.rules import Tensor
from whycluster.deep.lrp.tape import follow_modules
from whycluster.deep.tensors import read_tensor, to_numpy

_BATCH_VALUES = 16 * 3 * 224 * 224
_MAX_BATCH_SIZE = 512
_EMBEDDING_SIZE = 1024  # assumed number of values in the embedding of one integer
_TOLERANCE = 3e-2  # relative to the largest feature: above half-precision rounding, below real differences
POOLS = (None, "mean", "max", "cls")
MASK = "attention_mask"
_MAIN = ("input_ids", "pixel_values", "inputs_embeds", "input_values", "input_features")
Batch: TypeAlias = "Tensor | dict[str, Any]"
"""Inputs of one forward pass: a tensor, or the arguments of an encoder by name."""
_T = TypeVar("_T")
_OUT_OF_MEMORY = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)


class _LayerReached(BaseException):  # not an Exception, since a forward may contain ``except Exception``
    """Ends a forward pass at the requested layer."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of an encoder.

    Attributes
    ----------
    native : the inputs as given by the user, with one input per position along the first axis
    tensor : the inputs as a tensor, without a copy if possible
    where : the public function that was called, for messages
    name : the name of that function's parameter, for messages
    key : the argument of the encoder that takes the tensor, or None if the encoder takes only the tensor
    others : the other arguments of the encoder by name, such as an attention mask
    """

    native: Any
    tensor: Tensor
    where: str
    name: str
    key: str | None = None
    others: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tensor)

    @classmethod
    def open(cls, X: Any, where: str, name: str = "X") -> Inputs:
        """Read inputs and run all checks that do not need the encoder."""
        if isinstance(X, Mapping):
            return cls._open_mapping(X, where, name)
        if isinstance(X, (list, tuple)) and X and all(isinstance(x, torch.Tensor) for x in X):
            X = _stack(X, where, name)
        tensor = read_tensor(X, where, name)
        if tensor.ndim < 2 or not len(tensor):
            raise InvalidInputError(
                f"{where}: {name} must be a batch of one or more encoder inputs, stacked along the first "
                f"axis; got shape {tuple(tensor.shape)}. For a single input, pass {name}[None]."
            )
        return cls(X, tensor, where, name)

    @classmethod
    def _open_mapping(cls, X: Mapping[str, Any], where: str, name: str) -> Inputs:
        """Read the arguments of an encoder by name, such as the output of a tokenizer."""
        arrays = {key: value for key, value in X.items() if not _is_single(value)}
        key = next((key for key in _MAIN if key in arrays), next(iter(arrays), None))
        if key is None:
            raise InvalidInputError(
                f"{where}: {name} must contain at least one input array; got {dict(X)!r}."
            )
        main = cls.open(_rectangular(arrays[key], where, f"{name}[{key!r}]"), where, f"{name}[{key!r}]")
        others = {k: v for k, v in X.items() if k != key and v is not None}
        for other in others.keys() & arrays.keys():
            others[other] = torch.as_tensor(_rectangular(arrays[other], where, f"{name}[{other!r}]"))
            if len(others[other]) != len(main):
                raise InvalidInputError(
                    f"{where}: all arrays of {name} must have one row per input; {key!r} has {len(main)} and "
                    f"{other!r} has {len(others[other])}."
                )
        return cls(X, main.tensor, where, name, key, others)

    @property
    def are_indices(self) -> bool:
        """Whether the inputs are integers, which an encoder may look up in a table."""
        return not self.tensor.is_floating_point()

    def others_in(self, rows: slice) -> dict[str, Any]:
        """Return the other arguments of the encoder for some of the inputs."""
        return {k: v[rows] if isinstance(v, torch.Tensor) else v for k, v in self.others.items()}

    @property
    def default_batch_size(self) -> int:
        """The default batch size for inputs of this size, such as 16 for images of 224 x 224 pixels.

        Integers may be embedding indices, so each integer counts as a vector.
        """
        size = self.tensor[0].numel() * (1 if self.tensor.is_floating_point() else _EMBEDDING_SIZE)
        return max(1, min(_MAX_BATCH_SIZE, _BATCH_VALUES // max(1, size)))

    @property
    def is_frame(self) -> bool:
        """Whether the user passed a data frame."""
        is_tensor = isinstance(self.native, torch.Tensor) or self.key is not None
        return not is_tensor and column_names(self.native, self.where, self.name) is not None

    def describe(self) -> str:
        """Return the shape and dtype of the inputs, for messages."""
        return f"shape {tuple(self.tensor.shape)}, {str(self.tensor.dtype).removeprefix('torch.')}"


class Encoder:
    """A torch module that runs only up to one of its layers.

    Parameters
    ----------
    module : the module, whose weights, mode, hooks and gradients stay unchanged
    layer : the name of the layer whose output provides the features, or None for the output of the module
    pool : "mean" or "max" to pool a layer output of shape (n, channels, ...) over all locations, or of shape
        (n, tokens, channels) over all tokens that the attention mask, if there is one, does not hide; "cls"
        for the first token; or None
    batch_size : the number of inputs per batch, or None to choose it based on the size of the inputs
    where : the public function that was called, for messages
    """

    def __init__(
        self,
        module: Any,
        layer: str | None,
        pool: str | None,
        batch_size: int | None,
        where: str = "DeepClustering",
    ) -> None:
        if not isinstance(module, nn.Module):
            raise InvalidInputError(
                f"{where}: the encoder must be a torch.nn.Module; got {type(module).__name__}."
            )
        if pool not in POOLS:
            raise InvalidInputError(f"{where}: pool must be None, 'mean', 'max' or 'cls'; got {pool!r}.")
        self.module, self.layer, self.pool, self.batch_size = module, layer, pool, batch_size
        self._runs_once = layer is None
        self._channels_last: bool | None = None
        if batch_size is not None:
            check_integer(batch_size, 1, where, "batch_size", "None or ")
        if layer is not None:
            self.check_layer(layer, where, "layer")

    def check_layer(self, name: Any, where: str, parameter: str) -> None:
        """Raise an error that lists the most similar names if the module has no layer with this name."""
        names = [n for n, _ in self.module.named_modules() if n]
        if name in names:
            return
        close = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5) or names[:5]
        listed = f"The closest names are {', '.join(map(repr, close))}."
        hint = listed if close else "The encoder has no layers."
        raise InvalidInputError(
            f"{where}: {parameter} must be the name of a layer of the encoder, as in its named_modules(); "
            f"got {name!r}. {hint}"
        )

    @property
    def _first_parameter(self) -> Tensor | None:
        real = (p for p in (*self.module.parameters(), *self.module.buffers()) if p.is_floating_point())
        return next(real, None)

    @property
    def _first_convolution(self) -> Any:
        return next((part for part in self.module.modules() if isinstance(part, _CONVOLUTIONS)), None)

    @property
    def _has_embedding(self) -> bool:
        """Whether integer inputs may be embedding indices rather than values."""
        return any(isinstance(part, nn.Embedding) for part in self.module.modules())

    def slices(self, inputs: Inputs) -> list[slice]:
        """Return the slices of all batches."""
        size = self.batch_size or inputs.default_batch_size
        return [slice(i, min(i + size, len(inputs))) for i in range(0, len(inputs), size)]

    def batch(self, inputs: Inputs, rows: slice) -> Batch:
        """Return a copy of some inputs, on the device and in the dtype of the encoder."""
        tensor = self._place(inputs.tensor[rows], inputs)
        if inputs.key is None:
            return tensor
        others = inputs.others_in(rows)
        placed = {k: self._place(v, inputs) if isinstance(v, torch.Tensor) else v for k, v in others.items()}
        return {inputs.key: tensor, **placed}

    def _place(self, tensor: Tensor, inputs: Inputs) -> Tensor:
        like = self._first_parameter
        if like is not None:
            are_indices = not tensor.is_floating_point() and (self._has_embedding or inputs.key is not None)
            tensor = tensor.to(like.device, tensor.dtype if are_indices else like.dtype)
        with torch.inference_mode(False):  # a tape cannot record operations on inference tensors
            return tensor.clone()  # an encoder may change its input in place

    def features(self, inputs: Inputs) -> NDArray[Any]:
        """Return the features of all inputs, (n, ...)."""
        self.check(inputs)
        features: NDArray[Any] | None = None
        for rows in track("encoding", self.slices(inputs)):
            batch = self.batch(inputs, rows)
            last = self.batch(inputs, slice(rows.stop - 1, rows.stop))
            # Do not use inference mode, since tensors that the module caches could then no longer be trained.
            with torch.no_grad(), self._translate_errors(inputs):
                part = to_numpy(self.forward(batch, inputs.where))
            if features is None:
                features = np.empty((len(inputs), *part.shape[1:]), part.dtype)
                self._check_alone(last, part, inputs)
            _check_batch(part, rows, features, inputs)
            features[rows] = part
        assert features is not None
        return features

    def trace(self, batch: Batch, inputs: Inputs, at: str | None) -> Trace:
        """Record a batch's forward pass, to propagate relevance to the layer ``at`` (None for the inputs)."""
        if at is None and self.reads_tokens(inputs):
            raise InvalidInputError(
                f"{inputs.where}: {inputs.name} must hold floating-point numbers to receive relevance; this "
                "encoder uses integers as embedding indices. Use at=... to name the embedding layer or a "
                "later layer."
            )
        return self._trace(batch, inputs, at)

    def trace_all(self, inputs: Inputs, at: str | None) -> Trace:
        """Check all inputs and record their forward pass as one batch."""
        self.check(inputs)
        return self.trace(self.batch(inputs, slice(None)), inputs, at)

    def kind(self, inputs: Inputs) -> str:
        """Return the kind of network, determined from the operations on the first input."""
        return self._trace(self.batch(inputs, slice(0, 1)), inputs).kind

    def _trace(self, batch: Batch, inputs: Inputs, at: str | None = None) -> Trace:
        key = inputs.key

        def forward(x: Tensor) -> Tensor:
            return self.forward(
                x if isinstance(batch, torch.Tensor) else {**batch, str(key): x}, inputs.where
            )

        x = batch if isinstance(batch, torch.Tensor) else batch[str(key)]
        with self._translate_errors(inputs):
            return trace(self.module, x, forward, inputs.where, self._lookup(inputs, at))

    def reads_tokens(self, inputs: Inputs) -> bool:
        """Return whether the inputs are integers that the encoder looks up in a table."""
        return inputs.are_indices and self._has_embedding

    def _lookup(self, inputs: Inputs, at: str | None) -> str | None:
        """Return the layer that looks up integers in a table, where relevance ends, or None."""
        if not inputs.are_indices:
            return None
        tables = [name for name, part in self.module.named_modules() if isinstance(part, nn.Embedding)]
        return at if at in tables else next(iter(tables), None)

    def _check_alone(self, last: Batch, among: NDArray[Any], inputs: Inputs) -> None:
        """Raise an error if the features of an input depend on the other inputs in its batch.

        The last input is compared, since a recurrence over the batch would not affect the first input.
        """
        if len(among) == 1:
            return

        def run() -> NDArray[Any]:
            with torch.no_grad(), suppress(Exception):
                return np.asarray(to_numpy(self.forward(_copy(last), inputs.where))[0])
            return np.empty(0)  # the encoder does not accept a single input

        alone = run()
        allowed = _TOLERANCE * max(1e-30, float(np.abs(among[-1]).max(initial=0.0)))
        with np.errstate(invalid="ignore"):
            if alone.shape == among[-1].shape and not np.abs(alone - among[-1]).max(initial=0.0) > allowed:
                return
            again = run()
            if alone.shape == again.shape and np.abs(alone - again).max(initial=0.0) > 1e-3 * allowed:
                raise InvalidInputError(
                    f"{inputs.where}: the encoder must return the same features each time it runs; they "
                    "differ for the same input. Call encoder.eval(), and remove all randomness from its "
                    "forward method: dropout needs training=self.training."
                )
        raise InvalidInputError(
            f"{inputs.where}: the encoder must encode each input independently, along the first axis of "
            f"{inputs.name}; input {len(among) - 1} gets different features when it is encoded alone than "
            "when it is encoded in a batch. Use the first axis for inputs (batch_first=True), and do not "
            "normalize over the batch."
        )

    def forward(self, batch: Batch, where: str) -> Tensor:
        """Return the features of one batch; ``where`` names the public function in messages."""
        n_inputs, features = _count(batch), first_tensor(self._run(batch, where))
        if features is None or features.ndim < 2 or len(features) != n_inputs or not features.numel():
            got = "no tensor" if features is None else f"shape {tuple(features.shape)}"
            raise InvalidInputError(
                f"{where}: the encoder must return one non-empty row of features per input; for {n_inputs} "
                f"inputs it returns {got}. Use layer=... to name a layer that does, or, for a single input, "
                "pass X[None]."
            )
        if self.pool is None or features.ndim == 2:
            return features
        if features.ndim == 3 and self._channels_last:
            mask = None if isinstance(batch, torch.Tensor) else batch.get(MASK)
            return features[:, 0] if self.pool == "cls" else pool_tokens(features, mask, self.pool)
        if self.pool == "cls":
            raise InvalidInputError(
                f"{where}: pool='cls' needs features of shape (n, tokens, channels); the encoder returns "
                f"shape {tuple(features.shape)}. Use pool='mean'."
            )
        locations = features.flatten(2)
        return locations.mean(2) if self.pool == "mean" else locations.amax(2)

    def find_tokens(self, inputs: Inputs) -> None:
        """Determine whether a layer output has shape (n, tokens, channels) or (n, channels, time)."""
        if self.pool is None or self._channels_last is not None:
            return
        first, pool = self.batch(inputs, slice(0, 1)), self.pool
        with torch.no_grad(), self._translate_errors(inputs):
            features = first_tensor(self._run(first, inputs.where))
        if features is None or features.ndim != 3:
            self._channels_last = False
            return
        self.pool = None  # trace the output before it is pooled
        try:
            traced = self._trace(first, inputs)
        finally:
            self.pool = pool
        found = traced.channels_last
        usual = channel_axis(tuple(features.shape[1:]), traced.kind) == 1
        self._channels_last = usual if found is None else found

    def _run(self, batch: Batch, where: str) -> Any:
        """Run the module, but only up to the requested layer."""
        if self.layer is None:
            return call(self.module, batch)

        outputs: list[Any] = []
        hooked = any(part._forward_hooks or part._forward_pre_hooks for part in self.module.modules())

        def on_output(name: str, output: Any) -> None:
            if name == self.layer:
                outputs.append(output)
                if not hooked:  # the user's hooks may come in pairs, so let the module finish
                    raise _LayerReached

        with suppress(_LayerReached), follow_modules(self.module, [], on_output):
            call(self.module, batch)
        if outputs:
            return outputs[0]
        raise InvalidInputError(
            f"{where}: layer must name a layer that runs in the encoder's forward pass; {self.layer!r} does "
            "not run."
        )

    def check(self, inputs: Inputs) -> None:
        """Raise an error if the encoder would run but return wrong features."""
        if any(map(is_lazy, (*self.module.parameters(), *self.module.buffers()))):
            raise InvalidInputError(
                f"{inputs.where}: all weights of the encoder must be initialized; a lazy layer creates "
                "its weights only when it first runs. Run and train the encoder first."
            )
        check_mode(self.module, inputs.where, "encoder", "features")
        self._check_images(inputs)
        self._check_runs(inputs)
        if self.layer is not None and self.module.get_submodule(self.layer)._forward_hooks:
            raise InvalidInputError(
                f"{inputs.where}: the layer must not have forward hooks, because hooks may change its "
                f"output; {self.layer!r} has forward hooks. Remove them, or name its parent module."
            )
        self.find_tokens(inputs)

    def _check_images(self, inputs: Inputs) -> None:
        """Raise an error if the images contain integers, such as bytes."""
        first = self._first_convolution
        if first is None or inputs.tensor.ndim != first.weight.ndim:
            return
        if not inputs.tensor.is_floating_point():
            raise InvalidInputError(
                f"{inputs.where}: {inputs.name} must contain floating-point images, scaled and normalized as "
                f"in the encoder's training; got {inputs.describe()}. If the images "
                "are bytes and the encoder was trained on ImageNet, use wc.deep.normalize(images)."
            )

    def _check_runs(self, inputs: Inputs) -> None:
        """Raise an error if the layer runs more than once, since its output would be ambiguous."""
        if self._runs_once:
            return
        runs: list[str] = []
        # Ignore errors here. Later layers may not fit the inputs, and errors before the layer recur later.
        followed = follow_modules(self.module, [], lambda name, _: runs.append(name))
        with torch.no_grad(), suppress(Exception), followed:
            call(self.module, self.batch(inputs, slice(0, 1)))
        if runs.count(str(self.layer)) > 1:
            raise InvalidInputError(
                f"{inputs.where}: layer must run only once in the encoder; {self.layer!r} runs "
                f"{runs.count(str(self.layer))} times. Name its parent module, or a later layer."
            )
        self._runs_once = True

    @contextmanager
    def _translate_errors(self, inputs: Inputs) -> Iterator[None]:
        """Turn errors raised by the module into messages about its inputs."""
        try:
            yield
        except _OUT_OF_MEMORY as error:
            raise MemoryError(
                f"{inputs.where}: {self.batch_size or inputs.default_batch_size} inputs per batch do not fit "
                "into memory. Set a smaller batch_size."
            ) from error
        except WhyClusterError:
            raise
        except Exception as error:  # the user's module may raise anything
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise InvalidInputError(
                f"{inputs.where}: the encoder fails on {inputs.name} of {inputs.describe()}: {reason}. "
                f"{self._advice(inputs)}"
            ) from error

    def _advice(self, inputs: Inputs) -> str:
        """Suggest how to fix inputs on which the encoder fails."""
        first, shape, name = self._first_convolution, inputs.tensor.shape, inputs.name
        if (
            first is not None
            and len(shape) == first.weight.ndim
            and shape[1] != first.in_channels == shape[-1]
        ):
            return (
                "The channels seem to come last; torch expects (n, channels, ...). For images, use "
                f"{name}.transpose(0, 3, 1, 2) for an array or {name}.permute(0, 3, 1, 2) for a tensor."
            )
        return (
            "Use the input size, order of axes and dtype that the encoder was trained with; for a single "
            f"input, pass {name}[None]."
        )


def check_mode(module: nn.Module, where: str, name: str, result: str) -> None:
    """Raise an error if a part of a module is in training mode and behaves differently there."""
    for layer, part in module.named_modules():
        if getattr(part, "training", False) and _changes_in_training(part):
            raise InvalidInputError(
                f"{where}: the {name} must be in evaluation mode; its {layer or 'module'} "
                f"({type(part).__name__}) is in training mode, where {result} are random or depend on the "
                f"batch. Call {name}.eval() first."
            )


def track(title: str, batches: Sequence[_T]) -> Iterable[_T]:
    """Iterate over batches with a progress bar; a single batch needs none."""
    return batches if len(batches) < 2 else _show_progress(title, batches)


def _show_progress(title: str, batches: Sequence[_T]) -> Iterator[_T]:
    with Progress(title, len(batches)) as bar:
        for batch in batches:
            yield batch
            bar.step()


def call(module: nn.Module, batch: Batch) -> Any:
    """Run a module on a batch.

    Arguments by name are passed as keywords, as transformers expects them, unless the module has another
    required argument. Then it takes a mapping, as in sentence-transformers.
    """
    if isinstance(batch, torch.Tensor):
        return module(batch)
    parameters = inspect.signature(module.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    required = {p.name for p in parameters if p.default is p.empty and p.kind in kinds}
    return module(**batch) if required <= batch.keys() else module(dict(batch))


def pool_tokens(features: Tensor, mask: Tensor | None, pool: str) -> Tensor:
    """Return the mean or the maximum of features of shape (n, tokens, channels) over the tokens."""
    if mask is None or mask.shape != features.shape[:2]:
        return features.mean(1) if pool == "mean" else features.amax(1)
    hidden = mask[:, :, None] == 0
    if pool == "max":
        return features.masked_fill(hidden, float("-inf")).amax(1)
    return features.masked_fill(hidden, 0.0).sum(1) / (~hidden).sum(1).clamp(min=1)


def _count(batch: Batch) -> int:
    """Return the number of inputs in a batch."""
    if isinstance(batch, torch.Tensor):
        return len(batch)
    return next(len(value) for value in batch.values() if isinstance(value, torch.Tensor))


def _copy(batch: Batch) -> Batch:
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    return {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in batch.items()}


def _is_single(value: Any) -> bool:
    """Return whether an argument of an encoder is a setting for all inputs instead of an array of inputs."""
    return value is None or isinstance(value, (str, bytes, bool, int, float))


def _rectangular(value: Any, where: str, name: str) -> Any:
    """Return a list of rows as an array; raise an error if the rows have different lengths."""
    if not isinstance(value, (list, tuple)):
        return value
    if value and all(isinstance(row, torch.Tensor) for row in value):
        return _stack(value, where, name)
    try:
        return np.array(value)
    except ValueError:
        raise InvalidInputError(
            f"{where}: all rows of {name} must have the same length; got rows of different lengths. Pad "
            "them: tokenizer(texts, padding=True, truncation=True)."
        ) from None


def _stack(tensors: Any, where: str, name: str) -> Tensor:
    shapes = {tuple(x.shape) for x in tensors}
    if len(shapes) > 1:
        some = ", ".join(map(str, sorted(shapes)[:3]))
        raise InvalidInputError(
            f"{where}: all inputs of {name} must have the same shape, so that they form a batch; got tensors "
            f"of shapes {some}. Resize or pad them."
        )
    return torch.stack(list(tensors)).detach()


_TRAINING_DEPENDENT = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.RReLU)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _changes_in_training(part: nn.Module) -> bool:
    """Return whether a module behaves differently or changes its state in training mode."""
    drops = isinstance(part, (nn.MultiheadAttention, nn.RNNBase)) and part.dropout > 0
    tracks = isinstance(part, nn.modules.instancenorm._InstanceNorm) and part.track_running_stats
    return isinstance(part, _TRAINING_DEPENDENT) or drops or bool(tracks)


def _check_batch(part: NDArray[Any], rows: slice, features: NDArray[Any], inputs: Inputs) -> None:
    """Raise an error unless a batch's features are finite and have the same shape as in earlier batches."""
    if part.shape[1:] != features.shape[1:]:
        raise InvalidInputError(
            f"{inputs.where}: the encoder must return features of the same shape for all inputs; got "
            f"{features.shape[1:]} and, from input {rows.start} on, {part.shape[1:]}."
        )
    finite = torch.isfinite(inputs.tensor[rows]).flatten(1).all(1).numpy(force=True)
    bad = np.flatnonzero(~finite | ~np.isfinite(part.reshape(len(part), -1)).all(axis=1))
    if not bad.size:
        return
    row = rows.start + int(bad[0])
    if not finite[bad[0]]:
        raise InvalidInputError(
            f"{inputs.where}: {inputs.name} must be finite; input {row} contains NaN or infinite values."
        )
    raise InvalidInputError(
        f"{inputs.where}: features must be finite; input {row} of {inputs.name} is finite, but some of its "
        "features are not."
    )
