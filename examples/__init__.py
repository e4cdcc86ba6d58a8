"""Showcases: each is run as ``python -m examples.NAME`` and writes a page."""
