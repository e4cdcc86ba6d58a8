"""A torch module as an encoder: batches of inputs to features, with all checks of both."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parameter import is_lazy

from whycluster.core.errors import InvalidInputError, WhyClusterError
from whycluster.data.arrays import plain
from whycluster.data.opening import column_names, open_table
from whycluster.data.progress import Progress
from whycluster.data.validation import check_whole
from whycluster.deep.lrp.propagation import Trace, first_tensor, trace
from whycluster.deep.lrp.rules import Tensor
from whycluster.deep.lrp.tape import following

_NUMBERS = 16 * 3 * 224 * 224  # in a batch
_MOST_INPUTS = 512
_LOOKED_UP = 1024
_ALIKE = 3e-2  # of the largest feature; the rounding of half precision is less, other inputs are more
POOLS = (None, "mean", "max")
_OUT_OF_MEMORY = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)


class _Reached(BaseException):  # no Exception, so that no ``except Exception`` of a forward holds it back
    """Ends a forward pass at the layer that is wanted."""


@dataclass(frozen=True)
class Inputs:
    """What is encoded, as the user gave it, and as a tensor without a copy.

    Attributes
    ----------
    native : an array or a tensor, the first axis counts the inputs
    where : which function it was given to, for messages
    name : under which name
    """

    native: Any
    tensor: Tensor
    where: str
    name: str

    def __len__(self) -> int:
        return len(self.tensor)

    @classmethod
    def open(cls, X: Any, where: str, name: str = "X") -> Inputs:
        """Check what can be said without the encoder."""
        tensor = read_tensor(X, where, name)
        if tensor.ndim < 2 or not len(tensor):
            raise InvalidInputError(
                f"{where}: {name} must have a first axis that counts inputs of the encoder, one or more; got "
                f"shape {tuple(tensor.shape)}. For a single one, give {name}[None]."
            )
        return cls(X, tensor, where, name)

    @property
    def at_once(self) -> int:
        """How many to take at a time: 16 images of 224 x 224; what is looked up in a table is a vector."""
        size = self.tensor[0].numel() * (1 if self.tensor.is_floating_point() else _LOOKED_UP)
        return max(1, min(_MOST_INPUTS, _NUMBERS // max(1, size)))

    def describe(self) -> str:
        """Shape and dtype, for messages."""
        return f"shape {tuple(self.tensor.shape)}, {str(self.tensor.dtype).removeprefix('torch.')}"


class Encoder:
    """A torch module up to one of its layers.

    Parameters
    ----------
    module : the module; it is never changed, nor are its mode, its hooks or its gradients
    layer : the name of the layer whose output is the features; None for what the module itself gives
    pool : None, "mean" or "max": over all places of a layer of shape (n, channels, ...)
    batch_size : how many inputs go through it at once; None for as many as their size allows
    where : which function it was given to, for messages
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
            raise InvalidInputError(f"{where}: pool must be None, 'mean' or 'max'; got {pool!r}.")
        self.module, self.layer, self.pool, self.batch_size = module, layer, pool, batch_size
        self._runs_once = layer is None
        if batch_size is not None:
            check_whole(batch_size, 1, where, "batch_size", "None or ")
        if layer is not None:
            self.check_layer(layer, where, "layer")

    def check_layer(self, name: Any, where: str, parameter: str) -> None:
        """Raise, with the closest names, if the module has no such layer."""
        names = [n for n, _ in self.module.named_modules() if n]
        if name in names:
            return
        close = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5) or names[:5]
        listed = f"the closest are {', '.join(map(repr, close))}" if close else "it has none"
        raise InvalidInputError(
            f"{where}: {parameter} must be the name of a layer of the encoder, as in its named_modules(); "
            f"got {name!r}; {listed}."
        )

    @property
    def _first_parameter(self) -> Tensor | None:
        real = (p for p in (*self.module.parameters(), *self.module.buffers()) if p.is_floating_point())
        return next(real, None)

    @property
    def _first_convolution(self) -> Any:
        return next((part for part in self.module.modules() if isinstance(part, _CONVOLUTIONS)), None)

    @property
    def _looks_up(self) -> bool:
        """Whether whole numbers may be places in a table rather than values."""
        return any(isinstance(part, nn.Embedding) for part in self.module.modules())

    def slices(self, inputs: Inputs) -> list[slice]:
        """All inputs, some at a time."""
        size = self.batch_size or inputs.at_once
        return [slice(i, min(i + size, len(inputs))) for i in range(0, len(inputs), size)]

    def batches(self, inputs: Inputs) -> Iterator[tuple[slice, Tensor]]:
        """Copies of some inputs at a time, where the encoder is and as it takes them."""
        return ((rows, self._batch(inputs, rows)) for rows in self.slices(inputs))

    def _batch(self, inputs: Inputs, rows: slice) -> Tensor:
        batch, like = inputs.tensor[rows], self._first_parameter
        if like is not None:
            keeps = not batch.is_floating_point() and self._looks_up
            batch = batch.to(like.device, batch.dtype if keeps else like.dtype)
        with torch.inference_mode(False):  # in which operations are not taken apart
            return batch.clone()  # an encoder may work in place

    def features(self, inputs: Inputs) -> NDArray[Any]:
        """What the encoder makes of all inputs, (n, ...)."""
        self.check(inputs)
        found: NDArray[Any] | None = None
        with Progress("encoding", len(self.slices(inputs))) as bar:
            for rows, batch in self.batches(inputs):
                last = batch[-1:].clone()
                # Not inference mode: what a module keeps of it could not be trained any more.
                with torch.no_grad(), self._explained(inputs):
                    part = to_numpy(self.forward(batch, inputs.where))
                if found is None:
                    found = np.empty((len(inputs), *part.shape[1:]), part.dtype)
                    self._check_alone(last, part, inputs)
                _check_batch(part, rows, found, inputs)
                found[rows] = part
                bar.step()
        assert found is not None
        return found

    def trace(self, batch: Tensor, inputs: Inputs, at: str | None) -> Trace:
        """A forward pass of one batch, to go back through as far as the layer ``at``, or the inputs."""
        if at is None and not batch.is_floating_point():
            raise InvalidInputError(
                f"{inputs.where}: {inputs.name} must be real numbers to have relevance; whole numbers are "
                "places in a table for this encoder. Name the layer that looks them up, or a later one: "
                "at=..."
            )
        return self._trace(batch, inputs)

    def trace_all(self, inputs: Inputs, at: str | None) -> Trace:
        """The same for all inputs at once, checked."""
        self.check(inputs)
        return self.trace(self._batch(inputs, slice(None)), inputs, at)

    def kind(self, inputs: Inputs) -> str:
        """What kind of network this is, by what it does with the first input."""
        return self._trace(self._batch(inputs, slice(0, 1)), inputs).kind

    def _trace(self, batch: Tensor, inputs: Inputs) -> Trace:
        with self._explained(inputs):
            return trace(self.module, batch, lambda x: self.forward(x, inputs.where), inputs.where)

    def _check_alone(self, last: Tensor, among: NDArray[Any], inputs: Inputs) -> None:
        """Raise if the last input of a batch has other features alone than among others.

        The last, since what is read one after the other would not show in the first.
        """
        if len(among) == 1:
            return

        def run() -> NDArray[Any]:
            with torch.no_grad(), suppress(Exception):
                return np.asarray(to_numpy(self.forward(last.clone(), inputs.where))[0])
            return np.empty(0)  # it takes none alone

        alone = run()
        allowed = _ALIKE * max(1e-30, float(np.abs(among[-1]).max(initial=0.0)))
        with np.errstate(invalid="ignore"):
            if alone.shape == among[-1].shape and not np.abs(alone - among[-1]).max(initial=0.0) > allowed:
                return
            again = run()
            if alone.shape == again.shape and np.abs(alone - again).max(initial=0.0) > 1e-3 * allowed:
                raise InvalidInputError(
                    f"{inputs.where}: the encoder must give the same features each time it is run; of the "
                    "same input they differ. Call encoder.eval(), and leave nothing random in its forward: "
                    "dropout needs training=self.training."
                )
        raise InvalidInputError(
            f"{inputs.where}: the encoder must treat each input on its own, the first axis of {inputs.name} "
            f"counting them; input {len(among) - 1} has other features alone than among others. Is another "
            "axis that of the inputs (batch_first=True), or does it normalise by the batch?"
        )

    def forward(self, batch: Tensor, where: str) -> Tensor:
        """The features of one batch; ``where`` is the function that wants them, for messages."""
        features = first_tensor(self._run(batch, where))
        if features is None or features.ndim < 2 or len(features) != len(batch) or not features.numel():
            got = "no tensor" if features is None else f"shape {tuple(features.shape)}"
            raise InvalidInputError(
                f"{where}: the encoder must give features whose first axis counts its inputs; of "
                f"{len(batch)} inputs it gives {got}. Name a layer that does: layer=...; of a single input, "
                "give X[None]."
            )
        if self.pool is None or features.ndim == 2:
            return features
        places = features.flatten(2)
        return places.mean(2) if self.pool == "mean" else places.amax(2)

    def _run(self, batch: Tensor, where: str) -> Any:
        """Up to the layer; what comes after it is not computed."""
        if self.layer is None:
            return self.module(batch)

        found: list[Any] = []
        hooked = any(part._forward_hooks or part._forward_pre_hooks for part in self.module.modules())

        def on_output(name: str, output: Any) -> None:
            if name == self.layer:
                found.append(output)
                if not hooked:  # hooks of the user's come in pairs
                    raise _Reached

        with suppress(_Reached), following(self.module, [], on_output):
            self.module(batch)
        if found:
            return found[0]
        raise InvalidInputError(
            f"{where}: the layer {self.layer!r} of the encoder must take part in its forward pass; it does "
            "not."
        )

    def check(self, inputs: Inputs) -> None:
        """Raise for what would give features, but not those that are meant."""
        if any(map(is_lazy, (*self.module.parameters(), *self.module.buffers()))):
            raise InvalidInputError(
                f"{inputs.where}: the encoder must have its weights; those of a lazy layer are made when it "
                "is first run. Run it, and train it, first."
            )
        for name, part in self.module.named_modules():
            if getattr(part, "training", False) and _changes_in_training(part):
                raise InvalidInputError(
                    f"{inputs.where}: the encoder must be in the mode of evaluation; its {name or 'module'} "
                    f"({type(part).__name__}) is in that of training, in which features change with the "
                    "batch or at random. Call encoder.eval() first."
                )
        self._check_images(inputs)
        self._check_runs(inputs)
        if self.layer is not None and self.module.get_submodule(self.layer)._forward_hooks:
            raise InvalidInputError(
                f"{inputs.where}: layer must be one without forward hooks, which may change what it gives; "
                f"{self.layer!r} has some. Remove them, or name the module around it."
            )

    def _check_images(self, inputs: Inputs) -> None:
        """Raise for bytes."""
        first = self._first_convolution
        if first is None or inputs.tensor.ndim != first.weight.ndim:
            return
        if not inputs.tensor.is_floating_point():
            raise InvalidInputError(
                f"{inputs.where}: {inputs.name} must be images of real numbers, scaled and normalised as "
                f"those that the encoder was trained on; got {inputs.describe()}. For bytes of an encoder "
                "trained on ImageNet, wc.deep.normalize(images)."
            )

    def _check_runs(self, inputs: Inputs) -> None:
        """Raise if the layer runs more than once, so that it is not clear which output is meant."""
        if self._runs_once:
            return
        runs: list[str] = []
        # What comes after the layer need not fit; what fails before it is told later.
        listening = following(self.module, [], lambda name, _: runs.append(name))
        with torch.no_grad(), suppress(Exception), listening:
            self.module(self._batch(inputs, slice(0, 1)))
        if runs.count(str(self.layer)) > 1:
            raise InvalidInputError(
                f"{inputs.where}: layer must be one that runs once in the encoder; {self.layer!r} runs "
                f"{runs.count(str(self.layer))} times. Name the module around it, or one that runs after it."
            )
        self._runs_once = True

    @contextmanager
    def _explained(self, inputs: Inputs) -> Iterator[None]:
        """Say what was given, where the encoder fails with it."""
        try:
            yield
        except _OUT_OF_MEMORY as error:
            raise MemoryError(
                f"{inputs.where}: {self.batch_size or inputs.at_once} inputs at a time are too many; set a "
                "smaller batch_size."
            ) from error
        except WhyClusterError:
            raise
        except Exception as error:  # whatever the user's module raises
            reason = str(error).strip().partition("\n")[0].rstrip(".")
            raise InvalidInputError(
                f"{inputs.where}: the encoder cannot take {inputs.name} of {inputs.describe()}: {reason}. "
                f"{self._advice(inputs)}"
            ) from error

    def _advice(self, inputs: Inputs) -> str:
        """What to do about inputs that the encoder cannot take."""
        first, shape, name = self._first_convolution, inputs.tensor.shape, inputs.name
        if (
            first is not None
            and len(shape) == first.weight.ndim
            and shape[1] != first.in_channels == shape[-1]
        ):
            return (
                "The channels seem to come last; in torch they come before places, (n, channels, ...). For "
                f"images, {name}.transpose(0, 3, 1, 2) of an array, {name}.permute(0, 3, 1, 2) of a tensor."
            )
        return (
            "Give inputs of the size, the order of axes and the dtype that it was trained on; of a single "
            f"one, {name}[None]."
        )


_OF_TRAINING = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.RReLU)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _changes_in_training(part: nn.Module) -> bool:
    """Whether a module gives something else, or changes itself, in the mode of training."""
    drops = isinstance(part, (nn.MultiheadAttention, nn.RNNBase)) and part.dropout > 0
    tracks = isinstance(part, nn.modules.instancenorm._InstanceNorm) and part.track_running_stats
    return isinstance(part, _OF_TRAINING) or drops or bool(tracks)


def read_tensor(X: Any, where: str, name: str) -> Tensor:
    """What the user gave as a tensor of real numbers, without a copy where that can be."""
    tensor = X.detach() if isinstance(X, torch.Tensor) else _from_array(X, where, name)
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta or tensor.is_quantized:
        raise InvalidInputError(
            f"{where}: {name} must be a dense tensor, with values; got one of {tensor.dtype}, "
            f"{tensor.layout}, on the device {tensor.device}. Of a sparse one, give {name}.to_dense()."
        )
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise InvalidInputError(f"{where}: {name} must hold real numbers; got {tensor.dtype}.")
    return tensor


def _from_array(X: Any, where: str, name: str) -> Tensor:
    table = None if column_names(X, where, name) is None else open_table(X, where=where, name=name)
    try:
        array = np.asarray(None if np.ma.is_masked(X) else X)
        if table is not None and array.dtype.kind == "O":  # columns of several kinds
            array = table.to_array()
        return torch.from_numpy(plain(array))
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"{where}: {name} must be a tensor or an array of numbers; got {type(X).__name__}."
        ) from None


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """As an array; numbers of half precision in single."""
    tensor = tensor.detach().cpu()
    array: NDArray[Any] = (tensor if tensor.dtype == torch.float64 else tensor.float()).numpy()
    return np.array(array)


def _check_batch(part: NDArray[Any], rows: slice, found: NDArray[Any], inputs: Inputs) -> None:
    """Raise for features that are not finite, or of another shape than those before."""
    if part.shape[1:] != found.shape[1:]:
        raise InvalidInputError(
            f"{inputs.where}: the encoder must give features of one shape; got {found.shape[1:]} and, from "
            f"input {rows.start} on, {part.shape[1:]}."
        )
    given = torch.isfinite(inputs.tensor[rows]).flatten(1).all(1).numpy(force=True)
    bad = np.flatnonzero(~given | ~np.isfinite(part.reshape(len(part), -1)).all(axis=1))
    if not bad.size:
        return
    row = rows.start + int(bad[0])
    if not given[bad[0]]:
        raise InvalidInputError(
            f"{inputs.where}: {inputs.name} must be finite; input {row} holds values that are not."
        )
    raise InvalidInputError(
        f"{inputs.where}: features must be finite; of input {row} of {inputs.name} some are not, though it "
        "is finite itself."
    )
