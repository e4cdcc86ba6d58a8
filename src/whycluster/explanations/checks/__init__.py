"""Checks that warn about misleading results in an explanation.

Modules, in reading order:

- `all_checks`: `checks` and `warnings`, which run all checks
- `finding`: `Check` and `Finding`, their results
- `context`: the explanation and the data that several checks share
- `clusters`: fidelity, residual, noise, and small, similar and borderline clusters
- `columns`: columns with too much relevance, identifiers, dates, years, labels and missing values
- `values`: columns that are nearly constant, repeat another, or are skewed
"""
