"""Counterfactuals: the smallest change that moves a row to another cluster.

Modules, in reading order:

- `counterfactual`: the change, and its text
- `changeable_row`, `cell_values`: how changes of a row's values affect the inputs of the model
- `smallest_change`: the search for the change; `half_spaces`: boundaries that are hyperplanes;
  `quadratic_step`: quadrics; `local_search`: other boundaries; `whole_steps`: columns that take only whole
  numbers
- `switched_row`: categories that change together with other features
- `short_values`: rounded values that are still enough when printed
"""
