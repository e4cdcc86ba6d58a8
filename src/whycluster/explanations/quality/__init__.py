"""Quality: whether there are clusters at all, and how distinct and stable they are.

Modules, in reading order:

- `clustering_quality`: `quality` and its verdicts
- `null_data`: data without clusters, to compare with
- `refitting`: copies of a model, fitted to other rows
"""
