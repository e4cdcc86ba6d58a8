"""The tape, which records every operation in a torch module's forward pass.

A `Tape` records below autograd, where modules, functions and operators have all become calls to the same
basic operations. It therefore does not matter how a network is written. Residual sums, functional calls and
modules that run twice are recorded like all other operations. The module runs as usual and is not modified.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from whycluster.core.errors import InvalidInputError, UnsupportedModelError

# The results of these operations scale or weight other values, so they receive no relevance in products.
_SCALES = {
    "_softmax",
    "_safe_softmax",
    "_log_softmax",
    "sigmoid",
    "hardsigmoid",
    "rsqrt",
    "reciprocal",
    "linalg_vector_norm",
    "norm",
    "var",
    "std",
}

# These operations use only the shapes of their inputs.
_CONSTANT = {
    "zeros_like",
    "ones_like",
    "full_like",
    "empty_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "new_empty",
}

# Operations with weights. Their outputs are ordinary values, even if their inputs are scales.
WEIGHTED = ("convolution", "mm", "addmm", "bmm", "baddbmm")


class Keep(enum.Flag):
    """The values of an operation that its handler needs."""

    NOTHING = 0
    INPUTS = enum.auto()
    OUTPUT = enum.auto()
    EXTRAS = enum.auto()  # all outputs except the first, such as indices and means


@dataclass(eq=False)
class Variable:
    """A tensor that depends on the input.

    Attributes
    ----------
    shape, stride, offset : its shape, its strides and its offset in the storage
    value : its values, or None if no handler needs them
    scales : whether it scales or weights other values, like attention, a gate or a length
    n_uses : the number of operations that take it as input
    producer : the operation that computed it, or None for the input
    rectified : the result of the ReLU applied to it. Where this result is above 0, it equals the variable's
        value, provided that no other operation uses the variable.
    """

    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
    value: torch.Tensor | None = None
    scales: bool = False
    n_uses: int = 0
    producer: Operation | None = None
    rectified: Variable | None = None


@dataclass(eq=False)
class Operation:
    """One operation of the forward pass.

    Attributes
    ----------
    function : the torch operator that was called
    args, kwargs : its arguments; each tensor that depends on the input is replaced by its `Variable`
    inputs : the variables among the arguments, in order
    outputs : its results, with None for results that are not floating-point tensors
    extras : all results except the first, if a handler needs them
    module : the name of the innermost running module
    block : one plus the number of max-pooling operations before it
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: list[Variable]
    module: str
    block: int
    outputs: list[Variable | None] = field(default_factory=list)
    extras: list[Any] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the operator, without the trailing underscore of in-place operators."""
        return _name(self.function)

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments by name, including defaults."""
        return _arguments_by_name(self.function, self.args, self.kwargs)

    def clear(self) -> None:
        """Drop all tensors and variables, which refer back to the operation and would keep it in memory."""
        self.args, self.kwargs, self.inputs, self.outputs, self.extras = (), {}, [], [], []

    def run(self, values: dict[Variable, torch.Tensor]) -> Any:
        """Run the operation out of place, with these tensors as its variables."""
        function = getattr(torch.ops.aten, self.name)
        args, kwargs = _replace(
            lambda x: values[x] if isinstance(x, Variable) else x, (self.args, self.kwargs)
        )
        return function(*args, **kwargs)


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Records all operations that depend on the watched input, inside a ``with`` block.

    Parameters
    ----------
    keeps : returns the values that an operation's handler needs, given the operation's name
    where : the public function that was called, for messages
    """

    def __init__(self, keeps: Callable[[str], Keep], where: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.operations: list[Operation] = []
        self.running: list[str] = []  # names of the running modules, outermost first
        self._keeps, self._where = keeps, where
        self._variables: Any = WeakTensorKeyDictionary()
        self._values: dict[int, list[Variable]] = {}  # variables with kept values, by storage
        self._changed: dict[int, list[torch.Tensor]] = {}  # tensors changed in place, by storage
        self._weights: dict[int, list[torch.Tensor]] = {}  # tensors that are not variables, by storage
        self._block = 1

    def watch(self, x: torch.Tensor) -> Variable:
        """Register a tensor as the input and return its variable."""
        variable = Variable(x.shape, x.stride(), int(x.storage_offset()))
        self._variables[x] = variable
        self._keep(variable, x)
        return variable

    def find(self, tensor: torch.Tensor) -> Variable | None:
        """Return the variable of a tensor, or None if the tensor does not depend on the input."""
        variable: Variable | None = self._variables.get(tensor)
        if variable is None and any(
            _overlap(tensor, other) for other in self._changed.get(_storage(tensor), [])
        ):
            raise UnsupportedModelError(
                f"{self._where}: {self._runner} changes part of a tensor in place and then uses the whole "
                "tensor, or the other way around; LRP cannot trace such changes. Combine the parts with "
                "torch.cat or torch.where."
            )
        return variable

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and record it if it depends on the input."""
        kwargs = kwargs or {}
        self._refuse_random(func, args, kwargs)
        operation, changed = self._begin(func, args, kwargs)
        if operation is None:
            return func(*args, **kwargs)
        for tensor in changed:
            self._copy_kept_values(tensor)
        result = func(*args, **kwargs)
        for tensor in changed:
            self._forget_aliases(tensor)
        self._end(operation, tree_leaves(result))
        return result

    @property
    def _module(self) -> str:
        return self.running[-1] if self.running else ""

    @property
    def _runner(self) -> str:
        """A description of the running module, for messages."""
        return f"module {self._module!r} of the encoder" if self._module else "the encoder's forward method"

    def _begin(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Operation | None, list[torch.Tensor]]:
        """Return the operation (None if it uses no variables) and the tensors that it changes."""
        taken: list[tuple[Variable, torch.Tensor]] = []

        def to_variable(x: Any) -> Any:
            variable = self.find(x) if isinstance(x, torch.Tensor) else None
            if variable is None:
                return x
            taken.append((variable, x))
            return variable

        if _name(func) in _CONSTANT:
            return None, []
        # The old values of ``out`` do not matter.
        positional, named = _replace(to_variable, (args, {k: v for k, v in kwargs.items() if k != "out"}))
        changed = _tensors_changed_by(func, args, kwargs)
        for tensor in changed:
            self._refuse_changed_weights(tensor)
        if not taken:
            return None, []
        self._note_weights(positional, named)
        inputs = [variable for variable, _ in taken]
        operation = Operation(func, positional, named, inputs, self._module, self._block)
        for variable, tensor in taken:
            variable.n_uses += 1
            if Keep.INPUTS in self._keeps(operation.name):
                self._keep(variable, tensor)
        return operation, changed

    def _end(self, operation: Operation, results: list[Any]) -> None:
        """Record the results of an operation."""
        keep, first = self._keeps(operation.name), True
        for result in results:
            real = isinstance(result, torch.Tensor) and (result.is_floating_point() or result.is_complex())
            operation.outputs.append(self._add_variable(operation, result) if real else None)
            if Keep.OUTPUT in keep and real and first:
                self._keep(self._variables[result], result)
            first = False
        if Keep.EXTRAS in keep:
            operation.extras = results[1:]
        if operation.name == "relu":
            operation.inputs[0].rectified = operation.outputs[0]
        self._block += "max_pool" in operation.name
        self.operations.append(operation)

    def _add_variable(self, operation: Operation, result: torch.Tensor) -> Variable:
        inherited = operation.name not in WEIGHTED and all(variable.scales for variable in operation.inputs)
        scales = operation.name in _SCALES or inherited or _is_gate(operation)
        variable = Variable(
            result.shape, result.stride(), int(result.storage_offset()), scales=scales, producer=operation
        )
        self._variables[result] = variable
        return variable

    def _keep(self, variable: Variable, tensor: torch.Tensor) -> None:
        if variable.value is None:
            variable.value = tensor
            self._values.setdefault(_storage(tensor), []).append(variable)

    def _note_weights(self, *arguments: Any) -> None:
        """Remember the tensors among an operation's arguments that do not depend on the input."""
        for x in tree_leaves(arguments):
            if isinstance(x, torch.Tensor):
                self._weights.setdefault(_storage(x), []).append(x)

    def _refuse_changed_weights(self, tensor: torch.Tensor) -> None:
        """Raise an error if the operation overwrites weights that the backward pass needs."""
        used = self._weights.get(_storage(tensor), [])
        if self._variables.get(tensor) is None and any(_overlap(tensor, weights) for weights in used):
            raise UnsupportedModelError(
                f"{self._where}: {self._runner} changes weights or constants in place after using them; LRP "
                "cannot trace such changes. Change a copy instead."
            )

    def _copy_kept_values(self, tensor: torch.Tensor) -> None:
        """Copy the kept values that are about to be overwritten."""
        for variable in self._values.pop(_storage(tensor), []):
            assert variable.value is not None
            variable.value = variable.value.clone()

    def _forget_aliases(self, tensor: torch.Tensor) -> None:
        """Drop the variables of other tensors that share values with a changed tensor."""
        storage = _storage(tensor)
        # The reference to the tensor prevents its storage from being reused.
        self._changed.setdefault(storage, []).append(tensor)
        for other in list(self._variables.keys()):
            if other is not tensor and _storage(other) == storage and _overlap(other, tensor):
                del self._variables[other]

    def _refuse_random(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return
        given = _arguments_by_name(func, args, kwargs)
        if given.get("dropout_p") == 0.0 or given.get("training") is False:  # attention; RReLU
            return
        raise InvalidInputError(
            f"{self._where}: the encoder must return the same features each time it runs, but "
            f"{self._runner} draws random numbers ({_name(func)}). Call encoder.eval(), and remove all "
            "randomness from its forward method."
        )


def _name(function: Any) -> str:
    name: str = function.overloadpacket.__name__
    if name == "_convolution":  # the operator's name in traced modules
        return "convolution"
    return name[:-1] if function._schema.is_mutable and name.endswith("_") else name


def _arguments_by_name(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call by name, including defaults."""
    arguments = function._schema.arguments
    given = {a.name: a.default_value for a in arguments if a.has_default_value()}
    given.update(zip((a.name for a in arguments), args, strict=False))
    return given | kwargs


def _storage(tensor: torch.Tensor) -> int:
    """Return the identity of a tensor's storage, which all of its views share."""
    storage: int = tensor.untyped_storage()._cdata
    return storage


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors in the same storage share values."""
    if one.dtype != other.dtype:  # a view with a different dtype
        return True
    n_values = one.untyped_storage().nbytes() // one.element_size()
    covered = torch.zeros(n_values, dtype=torch.bool)
    covered.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(covered.as_strided(other.shape, other.stride(), other.storage_offset()).any())


def _tensors_changed_by(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Return the tensors that an operation changes in place."""
    if not func._schema.is_mutable:
        return []
    given = _arguments_by_name(func, args, kwargs)
    changed = [
        given[a.name] for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write
    ]
    return [tensor for tensor in changed if isinstance(tensor, torch.Tensor)]


@contextmanager
def follow_modules(
    module: torch.nn.Module, running: list[str], on_output: Callable[[str, Any], None]
) -> Iterator[None]:
    """Track which submodules of a module run inside a ``with`` block.

    The hooks are global but act on this thread only. Nothing is attached to the user's modules.

    Parameters
    ----------
    module : the module whose submodules are tracked
    running : a list that is updated to hold the names of the running modules, outermost first
    on_output : called with the name of each submodule and its output
    """
    thread = threading.get_ident()
    names = {id(part): name for name, part in module.named_modules(remove_duplicate=True)}

    def begin(part: torch.nn.Module, args: Any) -> None:  # noqa: ARG001  # torch's signature
        if threading.get_ident() == thread:
            running.append(names.get(id(part), running[-1] if running else ""))

    def end(part: torch.nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001  # torch's signature
        if threading.get_ident() != thread:
            return
        running.pop()
        if id(part) in names:
            on_output(names[id(part)], output)

    handles = [hooks.register_module_forward_pre_hook(begin), hooks.register_module_forward_hook(end)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _is_gate(operation: Operation) -> bool:
    """Return whether an operation computes 1 + tanh or 1 + erf, the gate of a GELU that is written out."""
    if operation.name != "add" or len(operation.inputs) != 1:
        return False
    producer = operation.inputs[0].producer
    is_from_sign = producer is not None and producer.name in ("tanh", "erf")
    return is_from_sign and any(each == 1 for each in operation.args if isinstance(each, (int, float)))


def _replace(function: Callable[[Any], Any], x: Any) -> Any:
    """Replace the elements of nested tuples, lists and dictionaries. Those of torch leave cycles behind."""
    if isinstance(x, dict):
        return {key: _replace(function, value) for key, value in x.items()}
    if isinstance(x, (tuple, list)):
        found = [_replace(function, each) for each in x]
        return found if isinstance(x, list) else tuple(found)
    return function(x)
