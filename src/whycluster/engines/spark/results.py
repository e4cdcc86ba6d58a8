"""The columns that the result adds to a Spark DataFrame: their names, types and schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whycluster.core.errors import InvalidInputError
from whycluster.engines.request import ExplainRequest
from whycluster.engines.results import ArrowFormat, PartResult
from whycluster.engines.spark.parts import WHERE, RowReader, spark_column


@dataclass(frozen=True)
class OutputColumns:
    """The columns with the explanations.

    Attributes
    ----------
    format : the format of the explanations
    features : (d,) the names of the features
    names : the names of the columns, with the prefix
    types : the Arrow types of the columns
    """

    format: ArrowFormat
    features: list[str]
    names: list[str]
    types: list[Any]

    @classmethod
    def of(
        cls, request: ExplainRequest, reader: RowReader, layout: str, top: int | None, prefix: str
    ) -> OutputColumns:
        """Determine the names and types of the columns from a result without rows."""
        arrow = request.arrow_format(
            layout=layout,
            top=top,
            as_text=not reader.numeric or request.network.categories is not None,
            dtype=np.float32,
            value_dtype=np.float64,  # so that values are not rounded
        )
        known = request.network.feature_names or reader.features
        names = [str(name) for name in known]
        empty = arrow.table(PartResult.empty(len(names), names, None))
        return cls(
            arrow, reader.features, [prefix + name for name in empty.column_names], list(empty.schema.types)
        )

    def arrays(self, result: PartResult) -> list[Any]:
        """Return the explanations of a batch as Arrow arrays."""
        found = self.format.table(result)
        return [_to_array(one, kind) for one, kind in zip(found.columns, self.types, strict=True)]

    def schema(self, df: Any, kept: Sequence[str]) -> Any:
        """Return the schema of the result; the metadata of a column of arrays lists the features."""
        from pyspark.sql.pandas.types import from_arrow_type
        from pyspark.sql.types import StructField, StructType

        has_arrays = self.format.layout == "array" and self.format.top is None
        fields = [df.schema[name] for name in kept]
        for name, kind in zip(self.names, self.types, strict=True):
            metadata = {"features": self.features} if has_arrays and name == self.names[-1] else None
            fields.append(StructField(name, from_arrow_type(kind), metadata=metadata))
        return StructType(fields)

    def check_free(self, kept: Sequence[str], prefix: str) -> None:
        """Raise an error if two columns of the result would have the same name; Spark ignores case."""
        same = {name.lower(): name for name in self.names}
        other = next((name for name in self.names if same[name.lower()] != name), None)
        if other is not None:
            raise InvalidInputError(
                f"{WHERE}: column names must differ in more than case; the result would contain "
                f'{other!r} and {same[other.lower()]!r}. Rename a column, or pass layout="array".'
            )
        lower = {name.lower() for name in kept}
        taken = next((name for name in self.names if name.lower() in lower), None)
        if taken is not None:
            raise InvalidInputError(
                f"{WHERE}: df must not have a column named {taken!r}, because the result adds one. Drop it, "
                f"or pass a prefix other than {prefix!r}."
            )

    def observe(self, df: Any, observation: Any) -> Any:
        """Return the result with an observation of the number of rows and the number of invalid rows."""
        from pyspark.sql import functions as F  # noqa: N812  # Spark's convention

        invalid = F.count_if(spark_column(self.names[0]).isNull()).alias("invalid")
        return df.observe(observation, F.count(F.lit(1)).alias("rows"), invalid)


def _to_array(column: Any, kind: Any) -> Any:
    """Return a column of a table as one array of this type."""
    import pyarrow as pa

    column = column if column.type == kind else column.cast(kind)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
