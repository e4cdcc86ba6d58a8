"""Work in stages that run beside each other, each some steps ahead of the next."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")
_END = object()
_PATIENCE = 0.1  # seconds, until a stage looks whether it should stop


def ahead(items: Iterable[Item], n: int = 1) -> Generator[Item]:
    """The same items, made on a thread of their own, up to ``n`` of them before they are asked for.

    What goes wrong there is raised here. When no more is asked for, the thread is told to stop, and waited
    for: nothing goes on behind the caller's back.
    """
    stage = _Stage(iter(items), n)
    stage.thread.start()
    try:
        while (item := stage.get()) is not _END:
            yield item
    finally:
        stage.stopped.set()
        stage.thread.join()


class _Stage:
    """A thread that makes items, and the few that wait to be taken."""

    def __init__(self, items: Iterator[Any], n: int) -> None:
        self.items, self.stopped = items, threading.Event()
        self.waiting: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(n)
        self.thread = threading.Thread(target=self._work, name="whycluster-ahead", daemon=True)

    def get(self) -> Any:
        item, error = self.waiting.get()
        if error is not None:
            raise error
        return item

    def _work(self) -> None:
        try:
            for item in self.items:
                self._put(item)
                if self.stopped.is_set():
                    break
            self._put(_END)
        except BaseException as error:  # it belongs to whoever asks for the next item
            self._put(_END, error)
        finally:
            close = getattr(self.items, "close", lambda: None)  # a generator: its own stages end too
            close()

    def _put(self, item: Any, error: BaseException | None = None) -> None:
        while not self.stopped.is_set():
            try:
                self.waiting.put((item, error), timeout=_PATIENCE)
            except queue.Full:
                continue
            return
