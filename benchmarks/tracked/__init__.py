"""Benchmarks that asv runs for many commits; see asv.conf.json and ``make bench-history``."""
