"""The file of the option ``--names``, which maps clusters to names."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from whycluster.core.errors import InvalidInputError
from whycluster.data.files import parse_json
from whycluster.data.labels import as_labels, renamed


def read_names(path: Path, labels: list[Any]) -> dict[Any, str]:
    """Read names from a JSON object, or from a CSV file with a cluster and a name in each line.

    The first line of a CSV file may be a header.
    """
    known = {str(label): label for label in labels}
    try:
        text = path.read_text("utf-8-sig")
        pairs = _from_json(text) if path.suffix.lower() == ".json" else _from_csv(text, known)
    except OSError as error:
        raise InvalidInputError(
            f"--names must be a readable file; {error.strerror}: {str(path)!r}."
        ) from error
    except (ValueError, csv.Error) as error:
        raise InvalidInputError(
            "--names must be a CSV file with a cluster and a name in each line, or a JSON object; "
            f"{str(path)!r} is not: {error}."
        ) from error
    names = {}
    for cluster, name in pairs:
        if cluster not in known:
            listed = ", ".join(list(known)[:10]) + ", ..." * (len(known) > 10)
            raise InvalidInputError(f"--names must contain only known clusters ({listed}); got {cluster!r}.")
        if known[cluster] in names:
            raise InvalidInputError(
                f"--names must name each cluster at most once; cluster {cluster} has two names."
            )
        names[known[cluster]] = name
    renamed(as_labels(labels), names, "--names")  # raises if names repeat or are blank
    return names


def _from_json(text: str) -> list[tuple[str, str]]:
    found = parse_json(text, object_pairs_hook=_Pairs)
    if not isinstance(found, _Pairs) or not all(isinstance(name, str) for _, name in found):
        raise ValueError("it must map clusters to text")
    return found


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object, in which a key may be repeated."""


def _from_csv(text: str, known: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [line for line in csv.reader(text.splitlines()) if line]
    for line in lines:
        if len(line) != 2:
            raise ValueError(f"a line has {len(line)} values instead of 2")
    pairs = [(line[0].strip(), line[1].strip()) for line in lines]
    return pairs[1:] if pairs and pairs[0][0] not in known else pairs
