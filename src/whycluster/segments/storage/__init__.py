"""Save networks and explanations to files, and load them.

In reading order:

- `saving`: `save` and `load`
- `archive`: reads and writes one file of arrays and facts; checks all contents when reading
- `parameters`: lists the parameters of each energy, and the values that they may have
"""
