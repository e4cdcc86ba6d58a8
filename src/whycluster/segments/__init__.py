"""Segmentations to keep: made once, saved, and applied to new rows.

- `storage/`: `save` and `load`
"""
