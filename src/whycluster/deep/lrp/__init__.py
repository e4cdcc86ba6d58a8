"""An LRP engine that propagates relevance layer by layer through any torch module's forward pass.

The engine records the operations of a forward pass instead of replacing modules. It therefore works for any
network and leaves the network unchanged. The engine is independent of clustering and imports only torch,
NumPy and this package's errors.

    trace = propagation.trace(module, x, module, "lrp")      # run and record the module
    composite = composites.composite_of("auto", trace.kind)  # choose rules
    relevance = trace.propagate(trace.seed(trace.features), composite)

Modules, in reading order:

- ``tape``: records the operations of a forward pass.
- ``rules``: the rules for linear operations (epsilon, gamma, z+, zB, w^2 and flat).
- ``composites``: which rule applies to which layer.
- ``operations``: handlers that propagate relevance through each operation.
- ``propagation``: traces a module and propagates relevance back through the trace.
"""
