"""Measurements by hand; each writes its results into `results`."""
