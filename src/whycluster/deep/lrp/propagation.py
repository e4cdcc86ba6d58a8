"""Layer-wise relevance propagation through a recorded forward pass of any torch module."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from whycluster.core.errors import InvalidInputError
from whycluster.deep.lrp.composites import Composite, Layer
from whycluster.deep.lrp.operations import LrpContext, is_weighted, keeps, propagate_through
from whycluster.deep.lrp.rules import Rule, Tensor
from whycluster.deep.lrp.tape import Operation, Tape, Variable, follow_modules

# Operations that only change the layout, so that their output still counts as the input.
_LAYOUT = {"view", "_unsafe_view", "clone", "_to_copy", "detach", "alias", "unsqueeze", "squeeze"}

# Operations with weights for each channel, by the axis of the channels.
_CHANNELS_LAST = ("native_layer_norm", "addmm", "mm")
_CHANNELS_FIRST = (
    "convolution",
    "native_batch_norm",
    "_native_batch_norm_legit_no_training",
    "native_group_norm",
)


@dataclass(frozen=True)
class Trace:
    """A recorded forward pass, through which relevance is propagated back.

    Attributes
    ----------
    operations : all operations, in order
    input, output : the first and the last variable
    features : the values of the output
    layers : the outputs of each module by name, one for each run of the module
    where : the public function that was called, for messages
    begin : the name of the layer whose output is the first variable, or None if that is the input
    """

    operations: list[Operation]
    input: Variable
    output: Variable
    features: Tensor
    layers: dict[str, list[Variable | None]]
    where: str
    begin: str | None = None

    @property
    def kind(self) -> str:
        """The name of the preset composite that suits this network."""
        names = {operation.name for operation in self.operations}
        if any(_attends(operation) for operation in self.operations):
            return "transformer" if self.begin is None else "text"
        if "convolution" not in names:
            return "mlp"
        adds = any(len(o.inputs) == 2 for o in self.operations if o.name == "add")
        return "resnet" if adds else "vgg"

    @property
    def channels_last(self) -> bool | None:
        """Whether the channels of the output are its last axis, or None if the trace does not show it.

        This follows from the last operation with weights per channel and the transpositions after it.
        """
        variable, last = self.output, True
        while variable.producer is not None:
            operation = variable.producer
            if operation.name in _CHANNELS_LAST:
                return last
            if operation.name in _CHANNELS_FIRST:
                return not last
            last ^= _moves_last_axis(operation)
            if not operation.inputs:
                return None
            variable = operation.inputs[0]
        return None

    def seed(self, relevance: Any) -> Tensor:
        """Return relevance as a tensor, in float64 if the features are float64, else in float32."""
        dtype = torch.float64 if self.features.dtype == torch.float64 else torch.float32
        return torch.as_tensor(relevance).detach().to(self.features.device, dtype)

    def layer(self, name: str) -> Variable:
        """Return the output of a module."""
        outputs = self.layers.get(name, [])
        n_runs = len(outputs)
        if n_runs != 1 or outputs[0] is None:
            reason = f"runs {n_runs} times" if n_runs != 1 else "returns no tensor that depends on the input"
            raise InvalidInputError(
                f"{self.where}: at must be a layer that runs once before the features are computed; "
                f"{name!r} {reason}."
            )
        return outputs[0]

    def propagate(
        self,
        relevance: Tensor,
        composite: Composite,
        at: str | None = None,
        *,
        last: bool = False,
        lost: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """Propagate relevance from the features to the input, or to the output of the layer ``at``.

        Parameters
        ----------
        relevance : the relevance of the features
        composite : the rules
        at : the name of a layer, or None for the input
        last : whether this is the last pass through the trace. The last pass frees values along the way and
            leaves the trace empty.
        lost : if given, receives the relevance that constants such as a class token get, (n,) each
        """
        target = self.input if at is None else self.layer(at)
        context = LrpContext(composite, self._rules(composite), target, self.where, len(self.features), lost)
        pending: dict[Variable, Tensor] = {self.output: relevance.reshape(self.output.shape)}
        with _default_modes(relevance.device):
            for operation in reversed(self.operations):
                if operation is target.producer:
                    break
                _step(operation, pending, context)
                if last:
                    _free(operation)
        if (
            last
        ):  # operations and variables refer to each other, so only the garbage collector would free them
            for operation in self.operations:
                operation.clear()
        return pending.get(target, relevance.new_zeros(target.shape))

    def _rules(self, composite: Composite) -> dict[Operation, Rule]:
        weighted = [operation for operation in self.operations if is_weighted(operation)]
        layers = [
            Layer(
                "convolution" if operation.name == "convolution" else "linear",
                operation.module,
                index,
                len(weighted),
                operation.block,
                self._is_input(operation.inputs[0]),
            )
            for index, operation in enumerate(weighted)
        ]
        composite.check_layers(layers, self.where)
        return {o: composite.rule_for(layer) for o, layer in zip(weighted, layers, strict=True)}

    def _is_input(self, variable: Variable) -> bool:
        while variable.producer is not None and variable.producer.name in _LAYOUT:
            variable = variable.producer.inputs[0]
        return variable is self.input


def _moves_last_axis(operation: Operation) -> bool:
    """Return whether an operation is a transposition that puts another axis last."""
    given, n = operation.arguments, len(operation.inputs[0].shape) if operation.inputs else 0
    if operation.name == "permute":
        return bool(given["dims"][-1] % n != n - 1)
    return operation.name == "transpose" and n - 1 in (given["dim0"] % n, given["dim1"] % n)


def _attends(operation: Operation) -> bool:
    """Return whether an operation is attention, possibly written as a product of two variables."""
    return "attention" in operation.name or (operation.name in ("mm", "bmm") and len(operation.inputs) == 2)


def _step(operation: Operation, pending: dict[Variable, Tensor], context: LrpContext) -> None:
    """Move the pending relevance of the outputs of an operation to its inputs."""
    relevance = [
        None if output is None or output is context.target else pending.pop(output, None)
        for output in operation.outputs
    ]
    if all(R is None for R in relevance):
        return
    for variable, R in propagate_through(operation, relevance, context):
        pending[variable] = pending[variable] + R if variable in pending else R


def _free(operation: Operation) -> None:
    """Free the values that only this operation needed."""
    operation.extras = []
    for output in operation.outputs:
        if output is None:
            continue
        if operation.name != "relu":  # the operation before a ReLU needs the ReLU's output
            output.value = None
        if output.rectified is not None:
            output.rectified.value = None


def trace(
    module: torch.nn.Module, x: Any, forward: Callable[[Any], Tensor], where: str, begin: str | None = None
) -> Trace:
    """Run ``forward``, which calls the module, and record all operations.

    Parameters
    ----------
    module : the module whose layers are recorded by name
    x : the input, a tensor unless ``begin`` is given
    forward : computes the features from the input
    where : the public function that was called, for messages
    begin : the name of a layer whose output takes the place of the input; nothing before it is recorded.
        Inputs that are looked up in a table, such as tokens, have no values to propagate relevance to.
    """
    layers: dict[str, list[Variable | None]] = {}
    tape = Tape(keeps, where)
    sources = [] if begin is not None else [tape.watch(x)]

    def on_output(name: str, output: Any) -> None:
        tensor = first_tensor(output)
        if name == begin and tensor is not None and not sources:
            sources.append(tape.watch(tensor))
        layers.setdefault(name, []).append(None if tensor is None else tape.find(tensor))

    followed = follow_modules(module, tape.running, on_output)
    with torch.inference_mode(False), torch.no_grad(), _without_fast_paths(module), tape, followed:
        features = forward(x)
        output = tape.find(features)
    if output is None or not sources:
        source = "the encoder's input" if begin is None else f"the output of the layer {begin!r}"
        raise InvalidInputError(f"{where}: the features must depend on {source}; these features do not.")
    return Trace(tape.operations, sources[0], output, features, layers, where, begin)


def first_tensor(output: Any) -> Tensor | None:
    """Return the output of a module, or None if it is not a tensor.

    If the output is a tuple or a list, its first element is used, since attention also returns weights. If it
    is a mapping, as in transformers and sentence-transformers, the sentence embedding is used if there is
    one, otherwise the first real tensor.
    """
    if isinstance(output, Mapping):
        real = (v for v in output.values() if isinstance(v, torch.Tensor) and v.is_floating_point())
        output = output.get("sentence_embedding", next(real, None))
    elif isinstance(output, (tuple, list)) and output:
        output = output[0]
    return output if isinstance(output, torch.Tensor) else None


@contextmanager
def _default_modes(device: torch.device) -> Iterator[None]:
    """Turn off inference mode and autocast, regardless of the caller's settings."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


@contextmanager
def _without_fast_paths(module: torch.nn.Module) -> Iterator[None]:
    """Turn off the fast paths of transformers and recurrent networks, which run as opaque operations.

    These settings are global, so other threads also use the slow paths in the meantime.
    """
    is_recurrent = any(isinstance(part, torch.nn.RNNBase) for part in module.modules())
    switches = _SWITCHES if is_recurrent else _SWITCHES[:1]
    for switch in switches:
        switch.hold()
    try:
        yield
    finally:
        for switch in switches:
            switch.release()


class _Switch:
    """A global setting that is turned off while anyone holds it and restored afterward."""

    def __init__(self, get: Callable[[], bool], put: Callable[[bool], Any]) -> None:
        self._get, self._put = get, put
        self._lock, self._n_holders, self._before = threading.Lock(), 0, True

    def hold(self) -> None:
        """Turn the setting off."""
        with self._lock:
            if not self._n_holders:
                self._before = self._get()
                self._put(False)
            self._n_holders += 1

    def release(self) -> None:
        """Restore the setting, unless others still hold it."""
        with self._lock:
            self._n_holders -= 1
            if not self._n_holders:
                self._put(self._before)


# This uses set_flags, since flags() would also change all other settings.
_SWITCHES = (
    _Switch(torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    _Switch(lambda: bool(torch.backends.mkldnn.enabled), torch.backends.mkldnn.set_flags),
    _Switch(lambda: bool(torch.backends.cudnn.enabled), torch.backends.cudnn.set_flags),
)
