"""The compiled loops in their own process, in an emulator of aarch64 or with sanitizers (see driver.c)."""

from __future__ import annotations

import atexit
import ctypes
import functools
import shutil
import struct
import subprocess
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hatch_build import FLAGS
from whycluster.core.compiled import loops
from whycluster.core.compiled.loops import Answer, Block, Model
from whycluster.models.gains import Parts

SOURCE = Path(loops.__file__).parent
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_GAP = 64  # bytes, as wide as a register


class LoopsProcess:
    """A process that runs the loops, called like the library that ctypes loads.

    Parameters
    ----------
    command : starts ``driver.c``
    """

    def __init__(self, *command: str) -> None:
        self._lock, pipe = threading.Lock(), subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)

    def close(self) -> None:
        self._process.communicate()

    def gains_room(self, parts: Any) -> int:  # noqa: ARG002  # the process has its own work space
        return 0

    def gains(self, width: int, parts: Any, n: Any, cluster: Any, given: Any, gain: Any, _: Any) -> None:
        """Call the loops of the sequential rule; ``gains_driver.c`` reads the arrays one after another."""
        of = _contents(parts, Parts)
        has_centers, n_rows = of.centers is not None, n.value
        arrays = [(of.log_weight, of.P), (of.begins, of.K + 1)]
        if has_centers:
            padded = -(-(of.d + 1) // 8) * 8
            arrays += [(of.centers, of.P * padded), (of.scale, padded)]
        arrays += [(cluster.value, n_rows), (given.value, n_rows * of.d * (1 if has_centers else of.P))]
        request = struct.pack("qqqqqqd", width, of.P, of.d, of.K, n_rows, has_centers, of.beta)
        request += b"".join(ctypes.string_at(address, 8 * size) for address, size in arrays)
        with self._lock:
            answer = self._ask(struct.pack("q", 1) + request, 8 * n_rows * of.d)
        ctypes.memmove(gain.value, answer, len(answer))

    def room(self, model: Any) -> int:  # noqa: ARG002  # the process has its own work space
        return 0

    def run(self, width: int, model: Any, block: Any, space: Any) -> float:  # noqa: ARG002  # as above
        arena = _Arena()
        copies = _copies(_contents(model, Model), _contents(block, Block), arena)
        sizes = struct.pack("qqqq", 0, width, len(arena.gaps) // 16, len(arena.bytes))
        with self._lock:
            answer = self._ask(sizes + copies + arena.gaps + arena.bytes, 8 + len(arena.bytes))
        arena.write_back(answer[8:])
        return float(struct.unpack("d", answer[:8])[0])

    def _ask(self, request: bytes, n_bytes: int) -> bytes:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(request)
        stdin.flush()
        answer = stdout.read(n_bytes)
        if len(answer) < n_bytes:
            _, errors = self._process.communicate()
            raise AssertionError(f"the loops ended with {self._process.returncode}: {errors.decode()}")
        return answer


class _Arena:
    """A copy of memory, which the process reads and writes."""

    def __init__(self) -> None:
        self.bytes, self.gaps = bytearray(), bytearray()
        self._results: list[tuple[int, int, int]] = []
        self.add_bytes(b"")  # nothing begins at 0

    def add_bytes(self, copied: bytes) -> int:
        """Add bytes and a gap, and return where in the arena they begin."""
        at, gap = len(self.bytes), _GAP + -len(copied) % 8
        self.bytes += copied + bytes(gap)
        self.gaps += struct.pack("qq", at + len(copied), gap)
        return at

    def add(self, address: int, n_bytes: int) -> int:
        """Copy memory and return where in the arena it begins."""
        return self.add_bytes(ctypes.string_at(address, n_bytes))

    def add_result(self, address: int, n_bytes: int) -> int:
        """Like `add`, for memory that the process writes to."""
        at = self.add(address, n_bytes)
        self._results.append((address, at, n_bytes))
        return at

    def write_back(self, answer: bytes) -> None:
        for address, at, n_bytes in self._results:
            ctypes.memmove(address, answer[at : at + n_bytes], n_bytes)


def _contents(reference: Any, kind: Any) -> Any:
    return ctypes.cast(reference, ctypes.POINTER(kind)).contents


def _copies(model: Any, block: Any, arena: _Arena) -> bytes:
    """Return both structures with offsets into the arena for pointers."""
    model, block = Model.from_buffer_copy(model), Block.from_buffer_copy(block)
    fours, twos = -(-model.K // 4), -(-model.d // 2)
    width = model.K if block.answer in (Answer.ENERGIES, Answer.COMPETITION) else model.d
    model.offset = arena.add(model.offset, 8 * model.d)
    model.bias = arena.add(model.bias, 8 * 4 * fours)
    model.slopes = arena.add(model.slopes, 8 * 4 * fours * model.d)
    model.both = arena.add(model.both, 8 * 4 * twos * model.K)
    if model.middle is not None:
        eights = -(-model.K // 8)
        model.middle = arena.add(model.middle, 4 * model.d)
        model.single_bias = arena.add(model.single_bias, 4 * 8 * eights)
        model.single_slopes = arena.add(model.single_slopes, 4 * 8 * eights * model.d)
        model.single_both = arena.add(model.single_both, 4 * 8 * -(-model.d // 4) * model.K)
        model.reach = arena.add(model.reach, 8 * 2 * (model.K + 1))
    block.columns = arena.add_bytes(struct.pack(f"{model.d}q", *_columns(model, block, arena)))
    if block.prior is not None:
        block.prior = arena.add(block.prior, 8 * model.K)
    if block.answer != Answer.ENERGIES:
        for name in ("cluster", "competitor", "evidence")[:: 2 if block.answer == Answer.ROUGH else 1]:
            setattr(block, name, arena.add_result(getattr(block, name), 8 * block.n))
    if block.out is not None:
        last = (block.n - 1) * block.out_down + (width - 1) * block.out_across
        block.out = arena.add_result(block.out, (last + 1) * (4 if block.to_float else 8))
    return bytes(model) + bytes(block)


def _columns(model: Any, block: Any, arena: _Arena) -> list[int]:
    """Copy the rows of the block and return where the columns begin, which may be outside of the copy."""
    size = 4 if block.from_float else 8
    begins = list((ctypes.c_int64 * model.d).from_address(block.columns))
    ends = [size * block.down * row for row in (block.first, block.first + block.n - 1)]
    if block.side_by_side:
        low = begins[0] + min(ends)
        at = arena.add(low, max(ends) - min(ends) + size * model.d)
        return [at + begin - low for begin in begins]
    n_bytes = max(ends) - min(ends) + size
    return [arena.add(begin + min(ends), n_bytes) - min(ends) for begin in begins]


def compile_driver(compiler: str, folder: Path, *flags: str, source: Path = SOURCE) -> str:
    """Compile the loops in a folder together with the driver; return the path of the program."""
    program = str(folder / "driver")
    drivers = [str(Path(__file__).with_name(name)) for name in ("driver.c", "gains_driver.c")]
    subprocess.run([compiler, *FLAGS, *flags, f"-I{source}", *drivers, "-o", program], check=True)
    return program


def with_flaw(folder: Path, right: str, wrong: str) -> LoopsProcess:
    """Start the loops with sanitizers, compiled from a copy in which ``wrong`` replaces ``right``."""
    sources = {path.name: path.read_text() for path in SOURCE.glob("*.[ch]")}
    assert "".join(sources.values()).count(right) == 1
    for name, source in sources.items():
        (folder / name).write_text(source.replace(right, wrong))
    return LoopsProcess(compile_driver("cc", folder, *SANITIZERS, "-O1", source=folder))


def _start(compiler: str, *flags: str, emulator: tuple[str, ...] = ()) -> LoopsProcess:
    """Compile the loops and start them; they end when the tests end."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    process = LoopsProcess(*emulator, compile_driver(compiler, folder, *flags))
    stack.callback(process.close)
    return process


@functools.cache
def emulated() -> LoopsProcess:
    """Start the loops for aarch64 in an emulator; skip the test if there is none."""
    missing = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed; `make compiler` installs them on Debian")
    return _start(COMPILER, "-static", emulator=(EMULATOR,))


@functools.cache
def sanitized() -> LoopsProcess:
    """Start the loops with sanitizers, which end the process at the first finding."""
    return _start("cc", *SANITIZERS)
