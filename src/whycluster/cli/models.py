"""``whycluster models`` lists the supported models and the installed libraries."""

from __future__ import annotations

from importlib import metadata

from whycluster.cli.formatting import to_json
from whycluster.cli.output import print_result
from whycluster.data import display
from whycluster.models.adapters.unsupported import SUPPORTED

EXTRAS = {
    "scikit-learn": "k-means, mixtures, trees, pipelines",
    "pandas": "data frames",
    "polars": "data frames; files read by this command",
    "pyarrow": "data frames; files larger than memory (extra files)",
    "torch": "deep clusterings (extra deep)",
    "clustpy": "DEC, IDEC, DCN",
    "dask": "partitioned arrays and data frames (extra dask)",
    "pyspark": "Spark data frames and MLlib models (extra spark)",
    "anndata": "groups of cells (extra bio)",
    "safetensors": "saved networks and explanations (extra save)",
    "dask-ml": "its KMeans and ParallelPostFit",
    "faiss-cpu": "faiss.Kmeans (extra faiss)",
    "kmedoids": "KMedoids (extra medoids)",
    "kmodes": "KModes, KPrototypes (extra categories)",
    "hdbscan": "HDBSCAN, by the rule that its labels follow",
    "hmmlearn": "GaussianHMM",
    "minisom": "MiniSom",
    "scikit-fuzzy": "fuzzy c-means, by its centers",
    "stepmix": "StepMix",
    "tslearn": "TimeSeriesKMeans",
    "bertopic": "BERTopic",
    "kneed": "choosing the number of clusters (extra tabular)",
    "matplotlib": "plots (extra plots)",
    "jinja2": "reports (extra report)",
    "shap": "exp.to_shap() (extra shap)",
    "fastexcel": "workbooks (extra excel)",
}
"""Optional libraries and their uses."""

_WIDEST = 60


def models(as_json: bool) -> None:
    """Print the supported models and the versions of the installed libraries."""
    installed = {name: _version(name) for name in EXTRAS}
    if as_json:
        print_result(to_json({"models": SUPPORTED, "installed": installed}))
        return
    rows = [[name, installed[name] or "-", use] for name, use in EXTRAS.items()]
    parts = [
        display.heading("Supported models"),
        "\n".join(f"- {line}" for line in SUPPORTED),
        "Any other clustering can be explained from its labels, through a surrogate model that reports\n"
        "how well it matches them.",
        display.heading("Libraries"),
        display.table(["library", "installed", "used for"], rows, align="<<<", longest=_WIDEST),
    ]
    print_result("\n\n".join(parts))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
