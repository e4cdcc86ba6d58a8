"""Layer-wise relevance propagation through whatever a torch module computes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from whycluster.core.errors import InvalidInputError
from whycluster.deep.lrp.composites import Composite, Place
from whycluster.deep.lrp.operations import LrpContext, go_back, is_weighted, keeps
from whycluster.deep.lrp.rules import Rule, Tensor
from whycluster.deep.lrp.tape import Operation, Tape, Variable, following

# Operations that leave values in place: what comes out of them is still the input.
_LAYOUT = {"view", "_unsafe_view", "clone", "_to_copy", "detach", "alias", "unsqueeze", "squeeze"}


@dataclass(frozen=True)
class Trace:
    """A forward pass, to be gone back.

    Attributes
    ----------
    operations : what was done
    input, output : the ends
    features : the values of the output
    layers : of each module, by name, what it gave, once for each time that it ran
    where : which function it is for, for messages
    """

    operations: list[Operation]
    input: Variable
    output: Variable
    features: Tensor
    layers: dict[str, list[Variable | None]]
    where: str

    @property
    def kind(self) -> str:
        """The composite that suits this network."""
        names = {operation.name for operation in self.operations}
        if any(_attends(operation) for operation in self.operations):
            return "transformer"
        if "convolution" not in names:
            return "mlp"
        adds = any(len(o.inputs) == 2 for o in self.operations if o.name == "add")
        return "resnet" if adds else "vgg"

    def seed(self, relevance: Any) -> Tensor:
        """Relevance of the features, in double precision for an encoder of that, else in single."""
        dtype = torch.float64 if self.features.dtype == torch.float64 else torch.float32
        return torch.as_tensor(relevance).detach().to(self.features.device, dtype)

    def layer(self, name: str) -> Variable:
        """What a module gave."""
        found = self.layers.get(name, [])
        if len(found) != 1 or found[0] is None:
            reason = (
                "gives no tensor that depends on the input" if len(found) == 1 else f"runs {len(found)} times"
            )
            raise InvalidInputError(
                f"{self.where}: at must be a layer that runs once on the way to the features; {name!r} "
                f"{reason}."
            )
        return found[0]

    def propagate(
        self, relevance: Tensor, composite: Composite, at: str | None = None, *, last: bool = False
    ) -> Tensor:
        """From the relevance of the features to that of the input, or of what the layer ``at`` gives.

        The ``last`` time, values are let go on the way, and there is no other.
        """
        reading = self.input if at is None else self.layer(at)
        setting = LrpContext(composite, self._rules(composite), reading, self.where)
        found: dict[Variable, Tensor] = {self.output: relevance.reshape(self.output.shape)}
        with _plainly(relevance.device):
            for operation in reversed(self.operations):
                if operation is reading.producer:
                    break
                _step(operation, found, setting)
                if last:
                    _let_go(operation)
        nothing = relevance.new_zeros(reading.shape)
        return found.get(reading, nothing)

    def _rules(self, composite: Composite) -> dict[Operation, Rule]:
        weighted = [operation for operation in self.operations if is_weighted(operation)]
        places = [
            Place(
                "convolution" if operation.name == "convolution" else "linear",
                operation.module,
                index,
                len(weighted),
                operation.block,
                self._is_input(operation.inputs[0]),
            )
            for index, operation in enumerate(weighted)
        ]
        composite.check_places(places, self.where)
        return {o: composite.rule_at(place) for o, place in zip(weighted, places, strict=True)}

    def _is_input(self, variable: Variable) -> bool:
        while variable.producer is not None and variable.producer.name in _LAYOUT:
            variable = variable.producer.inputs[0]
        return variable is self.input


def _attends(operation: Operation) -> bool:
    """Whether it is attention, or a product of two that depend on the input, as in attention written out."""
    return "attention" in operation.name or (operation.name in ("mm", "bmm") and len(operation.inputs) == 2)


def _step(operation: Operation, found: dict[Variable, Tensor], setting: LrpContext) -> None:
    """Take the relevance of what came out of an operation to what went in."""
    relevance = [
        None if output is None or output is setting.reading else found.pop(output, None)
        for output in operation.outputs
    ]
    if all(R is None for R in relevance):
        return
    for variable, R in go_back(operation, relevance, setting):
        found[variable] = found[variable] + R if variable in found else R


def _let_go(operation: Operation) -> None:
    """Free what was needed to go back through an operation, and is not for those before it."""
    operation.extras = []
    for output in operation.outputs:
        if output is None:
            continue
        if operation.name != "relu":  # the operation before a ReLU looks at what that gave
            output.value = None
        if output.rectified is not None:
            output.rectified.value = None


def trace(module: torch.nn.Module, x: Tensor, forward: Callable[[Tensor], Tensor], where: str) -> Trace:
    """Run ``forward``, which calls the module, and write down what it does."""
    layers: dict[str, list[Variable | None]] = {}
    tape = Tape(keeps, where)

    def on_output(name: str, output: Any) -> None:
        tensor = first_tensor(output)
        layers.setdefault(name, []).append(None if tensor is None else tape.find(tensor))

    source = tape.watch(x)
    listening = following(module, tape.running, on_output)
    with torch.inference_mode(False), torch.no_grad(), _without_shortcuts(module), tape, listening:
        features = forward(x)
        output = tape.find(features)
    if output is None:
        raise InvalidInputError(f"{where}: the features that the encoder gives do not depend on its input.")
    return Trace(tape.operations, source, output, features, layers, where)


def first_tensor(output: Any) -> Tensor | None:
    """What a module gave, or the first of it: attention gives its weights too."""
    if isinstance(output, (tuple, list)) and output:
        output = output[0]
    return output if isinstance(output, torch.Tensor) else None


@contextmanager
def _plainly(device: torch.device) -> Iterator[None]:
    """In the precision of the relevance and with gradients at hand, whatever the caller has set."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


@contextmanager
def _without_shortcuts(module: torch.nn.Module) -> Iterator[None]:
    """Transformers and recurrent networks have fast paths that are one operation; the long ones are taken.

    These settings are of the whole process: beside this, other threads take the long paths too.
    """
    recurs = any(isinstance(part, torch.nn.RNNBase) for part in module.modules())
    switches = _SWITCHES if recurs else _SWITCHES[:1]
    for switch in switches:
        switch.hold()
    try:
        yield
    finally:
        for switch in switches:
            switch.release()


class _Switch:
    """A setting of the process that is off while anyone needs it so, and then as it was before."""

    def __init__(self, get: Callable[[], bool], put: Callable[[bool], Any]) -> None:
        self._get, self._put = get, put
        self._lock, self._n_holders, self._before = threading.Lock(), 0, True

    def hold(self) -> None:
        """Switch off."""
        with self._lock:
            if not self._n_holders:
                self._before = self._get()
                self._put(False)
            self._n_holders += 1

    def release(self) -> None:
        """Switch on again, if it was on and nobody needs it off."""
        with self._lock:
            self._n_holders -= 1
            if not self._n_holders:
                self._put(self._before)


# set_flags, since their flags() would set all other settings too
_SWITCHES = (
    _Switch(torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    _Switch(lambda: bool(torch.backends.mkldnn.enabled), torch.backends.mkldnn.set_flags),
    _Switch(lambda: bool(torch.backends.cudnn.enabled), torch.backends.cudnn.set_flags),
)
