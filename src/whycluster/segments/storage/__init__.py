"""Save segmentations, networks and explanations to files, and load them.

In reading order:

- `saving`: `save` and `load`
- `archive`: reads and writes one file of arrays and facts; checks all contents when reading
- `networks`: networks, and the parts that they share with explanations
- `segmentations`, `steps`: segmentations, and the steps of their pipelines
- `parameters`: lists the parameters of each energy, and the values that they may have
"""
