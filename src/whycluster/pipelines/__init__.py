"""Pipelines: models behind preprocessing steps, explained in the user's own columns.

In reading order:

- `affine_map`, `affine_form`: the output of steps as an affine map of functions of single columns
- `steps`: the transformers of scikit-learn; `mllib`: those of Spark
- `wrapped_energy`, `column_energy`, `mixing`: energies split over the columns instead of the model's features
- `network`: the network of a pipeline, and the table of its rows
- `adapter`, `front_ends`: from a fitted scikit-learn Pipeline to its network; `spark_models`: from MLlib
- `tabular`: a pipeline for a table of numbers, categories and dates (public as ``whycluster.tabular``)
"""
