"""The process that Spark forks its Python workers from, with their modules already imported.

Otherwise each of about fifty workers would import them again, which takes longer than its work.
"""

from __future__ import annotations

from importlib import import_module

from pyspark.daemon import manager

MODULES = ["pandas", "pyarrow", "sklearn.mixture", "sklearn.pipeline", "whycluster.engines.spark.engine"]

if __name__ == "__main__":
    for module in ("pyspark.worker", "pyspark.sql.pandas.types", *MODULES):
        import_module(module)
    manager()
