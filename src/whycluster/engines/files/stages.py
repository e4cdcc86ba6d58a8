"""Work in stages that run beside each other, each some steps ahead of the next."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")
_END = object()


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
        stage.stop()


class _Stage:
    """A thread that makes items, and the few that wait to be taken."""

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
        self.room.release()  # for a thread that waits for it
        self.thread.join()

    def _work(self) -> None:
        try:
            while self._make():
                pass
        except BaseException as error:  # it belongs to whoever asks for the next item
            self.waiting.put((_END, error))
        finally:
            close = getattr(self.items, "close", lambda: None)  # a generator: its own stages end too
            close()

    def _make(self) -> bool:
        """Make an item when there is room for it; whether there may be more."""
        self.room.acquire()
        if self.stopped:
            return False
        item = next(self.items, _END)
        self.waiting.put((item, None))
        return item is not _END
