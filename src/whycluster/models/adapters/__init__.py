"""Registrations with `whycluster.neuralize.adapt`, one module per library, imported when a model comes."""
