"""Benchmarks, run by hand; each writes a page of results into `results`."""
