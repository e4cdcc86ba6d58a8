"""Benchmarks, run by hand; each writes a page to the folder ``results``."""
