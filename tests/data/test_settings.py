"""How messages spell settings."""

from __future__ import annotations

import threading

from whycluster.data.settings import setting, spelled_as


def test_a_setting_is_a_python_argument_unless_it_is_spelled_otherwise() -> None:
    assert setting("overwrite=True") == "overwrite=True"
    with spelled_as({"overwrite=True": "--force", "beta=...": ""}):
        assert setting("overwrite=True") == "--force"
        assert setting("beta=...") == ""
        assert setting("out") == "out"
    assert setting("overwrite=True") == "overwrite=True"


def test_worker_threads_use_the_same_spelling() -> None:
    found = []
    with spelled_as({"out": "--out"}):
        thread = threading.Thread(target=lambda: found.append(setting("out")))
        thread.start()
        thread.join()
    assert (found, setting("out")) == (["--out"], "out")
