"""Segmentations: clusterings that are made once, saved, and applied to new rows.

In reading order:

- `segmentation`: `segment` and `Segmentation`, the public interface
- `population`: what is known about the rows that a segmentation was made on
- `new_rows`: compares new rows with these rows
- `changes/`: `changes`, which compares two tables
- `storage/`: `save` and `load`
- `sql/`: `Segmentation.to_sql`
"""
