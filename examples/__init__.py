"""Examples: run ``python -m examples.NAME`` to write a page or a picture."""
