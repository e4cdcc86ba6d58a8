"""Checks of an explanation, which warn of what could mislead.

Modules, in reading order:

- `all_checks`: `checks` and `warnings`, which make all checks
- `finding`: `Check` and `Finding`, their results
- `context`: the explanation, with what several checks read of it
- `clusters`: fidelity, residual, noise, and small, similar and borderline clusters
- `columns`: columns that carry too much, identifiers, dates, years, labels and missing values
- `values`: columns that are nearly constant, repeat another, or are skewed
"""
