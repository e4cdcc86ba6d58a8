"""Stages of work on separate threads, each a few items ahead of the next."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")
_END = object()


def ahead(items: Iterable[Item], n: int = 1) -> Generator[Item]:
    """Yield ``items``, which another thread produces up to ``n`` items in advance.

    With ``n`` = 0 there is no other thread. Errors in the thread are raised here. When the generator is
    closed, the thread stops, and `ahead` waits for it.
    """
    if n == 0:
        yield from items
        return
    stage = _Stage(iter(items), n)
    try:
        stage.thread.start()  # Ctrl-C may interrupt the start
        while (item := stage.get()) is not _END:
            yield item
    finally:
        stage.stop()


class _Stage:
    """A thread that produces items, and the queue of items that have not been taken yet."""

    def __init__(self, items: Iterator[Any], n: int) -> None:
        self.items, self.room = items, threading.Semaphore(n)
        self.waiting: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        self.stopped = False
        self.thread = threading.Thread(target=self._work, name="whycluster-ahead", daemon=True)

    def get(self) -> Any:
        item, error = self.waiting.get()
        self.room.release()
        if error is not None:
            raise error
        return item

    def stop(self) -> None:
        self.stopped = True
        self.room.release()  # the thread may be waiting for room
        if self.thread.ident is not None:  # it was started
            self.thread.join()

    def _work(self) -> None:
        try:
            while self._make():
                pass
        except BaseException as error:  # raised where the next item is requested
            self.waiting.put((_END, error))
        finally:
            close = getattr(self.items, "close", lambda: None)  # closing a generator ends its own stages
            close()

    def _make(self) -> bool:
        """Produce an item when there is room for it; return whether there may be more items."""
        self.room.acquire()
        if self.stopped:
            return False
        item = next(self.items, _END)
        self.waiting.put((item, None))
        return item is not _END
