"""Save networks and explanations to files, and load them.

In reading order:

- ``saving``: `save` and `load`
- ``archive``: one file of arrays and facts, checked as it is read
- ``parameters``: the parameters of each energy, for files
"""
