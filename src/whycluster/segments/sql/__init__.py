"""Segmentations as SQL: one SELECT that assigns every row of a table as the model does.

In reading order:

- `statement`: the whole query
- `query`: expressions, and the subqueries that compute them
- `steps`, `reading`, `functions`, `encoders`: the steps of a pipeline
- `energies`, `ranking`: the model
- `dialects`: the differences between databases
"""
