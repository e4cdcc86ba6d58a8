"""Explain models that follow preprocessing steps, in terms of the user's own columns.

In reading order:

- `affine_map`, `affine_form`: represent the output of steps as an affine map of functions of individual
  columns
- `steps`, `mllib`: the supported transformers of scikit-learn and of Spark's MLlib
- `wrapped_energy`, `column_energy`, `mixing`: split energies over the columns instead of the model's features
- `network`: the network of a pipeline and the table of its rows
- `adapter`, `front_ends`: turn a fitted scikit-learn Pipeline into a network; `spark_models` does so for
  MLlib
- `tabular`: builds a pipeline for tables with numbers, categories and dates (public as
  ``whycluster.tabular``)
"""
