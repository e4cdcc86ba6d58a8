"""What a forward pass of a torch module really does, operation by operation.

A `Tape` listens below autograd, where calls of modules, functions and operators have all become the same few
operations. So it does not matter how a network is written: sums of residual branches, functional calls and
modules that are used twice are on the tape like anything else. The module runs as it always does; nothing of
it is changed.
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
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from whycluster.core.errors import InvalidInputError, UnsupportedModelError

# Their results scale or weigh something else: relevance of a product goes to the other factor.
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

# Of their inputs, only the shape matters.
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

# With weights, they make something new of what weighs or scales.
WEIGHTED = ("convolution", "mm", "addmm", "bmm", "baddbmm")


class Keep(enum.Flag):
    """Which values of an operation its rule needs."""

    NOTHING = 0
    INPUTS = enum.auto()
    OUTPUT = enum.auto()
    EXTRAS = enum.auto()  # what comes out besides the first: indices, means


@dataclass(eq=False)
class Variable:
    """A tensor that depends on the input.

    Attributes
    ----------
    shape, stride : how it lies
    value : its values, where a rule needs them
    scales : it weighs or scales something else: attention, a gate, a length
    n_uses : how many operations take it
    producer : the operation that made it; None for the input
    rectified : what a ReLU made of it: where that is above 0, it is the value, if nothing else changed it
    """

    shape: torch.Size
    stride: tuple[int, ...]
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
    function : the operator of torch, as it was called
    args, kwargs : what it was called with; tensors that depend on the input are `Variable`
    inputs : these variables, in order
    outputs : what came out; None for what is no tensor of real numbers
    extras : all of it but the first, where it is kept
    module : the name of the innermost module that ran
    block : how many maxima were pooled before, plus one
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
        """Without the underscore of operations that work in place."""
        return _name(self.function)

    @property
    def called(self) -> dict[str, Any]:
        """What it was called with, by name; defaults too."""
        return _by_name(self.function, self.args, self.kwargs)

    def run(self, values: dict[Variable, torch.Tensor]) -> Any:
        """The operation, not in place, with these tensors in the place of its variables."""
        function = getattr(torch.ops.aten, self.name)
        args, kwargs = tree_map(
            lambda x: values[x] if isinstance(x, Variable) else x, (self.args, self.kwargs)
        )
        return function(*args, **kwargs)


class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch types it not
    """Records all operations on what is `watched`, inside a ``with`` block.

    Parameters
    ----------
    keeps : says of an operation, by its name, which values its rule will need
    where : which function it is for, for messages
    """

    def __init__(self, keeps: Callable[[str], Keep], where: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.operations: list[Operation] = []
        self.running: list[str] = []  # the modules that run now, outermost first
        self._keeps, self._where = keeps, where
        self._variables: Any = WeakTensorKeyDictionary()
        self._values: dict[int, list[Variable]] = {}  # whose values are kept, by where they lie
        self._changed: dict[int, list[torch.Tensor]] = {}  # what was changed in place, by where it lies
        self._weights: dict[int, list[torch.Tensor]] = {}  # what is no variable, by where it lies
        self._block = 1

    def watch(self, x: torch.Tensor) -> Variable:
        """Take a tensor for the input."""
        variable = Variable(x.shape, x.stride())
        self._variables[x] = variable
        self._keep(variable, x)
        return variable

    def find(self, tensor: torch.Tensor) -> Variable | None:
        """What a tensor is on this tape; None if it does not depend on the input."""
        variable: Variable | None = self._variables.get(tensor)
        if variable is None and any(
            _overlap(tensor, other) for other in self._changed.get(_place(tensor), [])
        ):
            raise UnsupportedModelError(
                f"{self._where}: {self._runner} changes a part of a tensor in place and then uses the whole, "
                "or the other way round, which relevance cannot be followed through. Put the parts together "
                "with torch.cat or torch.where."
            )
        return variable

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation, and write it down if it has to do with the input."""
        kwargs = kwargs or {}
        self._refuse_random(func, args, kwargs)
        operation, changed = self._begin(func, args, kwargs)
        if operation is None:
            return func(*args, **kwargs)
        for tensor in changed:
            self._save_from_change(tensor)
        result = func(*args, **kwargs)
        for tensor in changed:
            self._forget_aliases(tensor)
        self._end(operation, tree_flatten(result)[0])
        return result

    @property
    def _module(self) -> str:
        return self.running[-1] if self.running else ""

    @property
    def _runner(self) -> str:
        """What runs now, for messages."""
        return f"module {self._module!r} of the encoder" if self._module else "the encoder's forward"

    def _begin(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Operation | None, list[torch.Tensor]]:
        """An operation with its variables, and the tensors that it changes; None if it has no variables."""
        taken: list[tuple[Variable, torch.Tensor]] = []

        def stand_in(x: Any) -> Any:
            variable = self.find(x) if isinstance(x, torch.Tensor) else None
            if variable is None:
                return x
            taken.append((variable, x))
            return variable

        if _name(func) in _CONSTANT:
            return None, []
        # What is written to, ``out``, does not matter before.
        placed, named = tree_map(stand_in, (args, {k: v for k, v in kwargs.items() if k != "out"}))
        changed = _changed(func, args, kwargs)
        for tensor in changed:
            self._refuse_changed_weights(tensor)
        if not taken:
            return None, []
        self._note_weights(placed, named)
        inputs = [variable for variable, _ in taken]
        operation = Operation(func, placed, named, inputs, self._module, self._block)
        for variable, tensor in taken:
            variable.n_uses += 1
            if Keep.INPUTS in self._keeps(operation.name):
                self._keep(variable, tensor)
        return operation, changed

    def _end(self, operation: Operation, results: list[Any]) -> None:
        """Write down what came out."""
        keep, first = self._keeps(operation.name), True
        for result in results:
            real = isinstance(result, torch.Tensor) and (result.is_floating_point() or result.is_complex())
            operation.outputs.append(self._made(operation, result) if real else None)
            if Keep.OUTPUT in keep and real and first:
                self._keep(self._variables[result], result)
            first = False
        if Keep.EXTRAS in keep:
            operation.extras = results[1:]
        if operation.name == "relu":
            operation.inputs[0].rectified = operation.outputs[0]
        self._block += "max_pool" in operation.name
        self.operations.append(operation)

    def _made(self, operation: Operation, result: torch.Tensor) -> Variable:
        kept = operation.name not in WEIGHTED and all(variable.scales for variable in operation.inputs)
        scales = operation.name in _SCALES or kept
        variable = Variable(result.shape, result.stride(), scales=scales, producer=operation)
        self._variables[result] = variable
        return variable

    def _keep(self, variable: Variable, tensor: torch.Tensor) -> None:
        if variable.value is None:
            variable.value = tensor
            self._values.setdefault(_place(tensor), []).append(variable)

    def _note_weights(self, *given: Any) -> None:
        """Remember where the tensors lie that an operation was given, and that are no variables."""
        for x in tree_flatten(given)[0]:
            if isinstance(x, torch.Tensor):
                self._weights.setdefault(_place(x), []).append(x)

    def _refuse_changed_weights(self, tensor: torch.Tensor) -> None:
        """Raise if what was used as it was, and is needed on the way back, is about to be overwritten."""
        used = self._weights.get(_place(tensor), [])
        if self._variables.get(tensor) is None and any(_overlap(tensor, weights) for weights in used):
            raise UnsupportedModelError(
                f"{self._where}: {self._runner} changes weights or constants in place after it has used "
                "them, which relevance cannot be followed through. Use a changed copy."
            )

    def _save_from_change(self, tensor: torch.Tensor) -> None:
        """Copy the values that are needed later and are about to be overwritten."""
        for variable in self._values.pop(_place(tensor), []):
            assert variable.value is not None
            variable.value = variable.value.clone()

    def _forget_aliases(self, tensor: torch.Tensor) -> None:
        """Other tensors that share its values no longer are what they were."""
        place = _place(tensor)
        self._changed.setdefault(place, []).append(tensor)  # which keeps the place from being used again
        for other in list(self._variables.keys()):
            if other is not tensor and _place(other) == place and _overlap(other, tensor):
                del self._variables[other]

    def _refuse_random(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return
        given = _by_name(func, args, kwargs)
        if given.get("dropout_p") == 0.0 or given.get("training") is False:  # attention; RReLU
            return
        raise InvalidInputError(
            f"{self._where}: the encoder must give the same features each time it is run, but "
            f"{self._runner} draws random numbers ({_name(func)}). Call encoder.eval(), and leave nothing "
            "random in its forward."
        )


def _name(function: Any) -> str:
    name: str = function.overloadpacket.__name__
    if name == "_convolution":  # as traced modules call it
        return "convolution"
    return name[:-1] if function._schema.is_mutable and name.endswith("_") else name


def _by_name(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What an operator is called with, by name; defaults too."""
    arguments = function._schema.arguments
    given = {a.name: a.default_value for a in arguments if a.has_default_value()}
    given.update(zip((a.name for a in arguments), args, strict=False))
    return given | kwargs


def _place(tensor: torch.Tensor) -> int:
    """Where the values of a tensor lie, the same for all views of it."""
    place: int = tensor.untyped_storage()._cdata
    return place


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors at one place share values; parts of a tensor need not."""
    if one.dtype != other.dtype:  # a view of other numbers
        return True
    n_values = one.untyped_storage().nbytes() // one.element_size()
    marks = torch.zeros(n_values, dtype=torch.bool)
    marks.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(marks.as_strided(other.shape, other.stride(), other.storage_offset()).any())


def _changed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that an operation works on in place."""
    if not func._schema.is_mutable:
        return []
    given = _by_name(func, args, kwargs)
    changed = [
        given[a.name] for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write
    ]
    return [tensor for tensor in changed if isinstance(tensor, torch.Tensor)]


@contextmanager
def following(
    module: torch.nn.Module, running: list[str], on_output: Callable[[str, Any], None] | None = None
) -> Iterator[None]:
    """Keep in ``running`` the names of the modules that run, and tell what each of them gives.

    This listens to all modules there are, on this thread; nothing is attached to those of the user.
    """
    thread = threading.get_ident()
    names = {id(part): name for name, part in module.named_modules(remove_duplicate=True)}

    def begin(part: torch.nn.Module, args: Any) -> None:  # noqa: ARG001  # as torch calls it
        if threading.get_ident() == thread:
            running.append(names.get(id(part), running[-1] if running else ""))

    def end(part: torch.nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001  # as torch calls it
        if threading.get_ident() != thread:
            return
        running.pop()
        if on_output is not None and id(part) in names:
            on_output(names[id(part)], output)

    handles = [hooks.register_module_forward_pre_hook(begin), hooks.register_module_forward_hook(end)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
