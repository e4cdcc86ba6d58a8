"""Delimited files: random cells and damaged bytes, read by the command and by `explain_dataset`."""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.fuzz.choices import Choices
from tests.fuzz.engine import Target
from whycluster.cli.reading import TableFile, check_text, code_notes, read
from whycluster.engines.files.parts import PartError, TextPart, reading

_CELLS = (
    *(
        "",
        "0",
        "1",
        "2.5",
        "-3",
        "007",
        "1,5",
        "1e400",
        "NA",
        "null",
        "nan",
        "inf",
        "true",
        "a",
        "é",
        "\ud7ff",
    ),
    *(
        '"a"',
        '"a,b"',
        '"a\nb"',
        '""',
        '"',
        'a"b',
        "2020-01-31",
        "2020-01-31T10:00",
        "31.1.2020",
        "$5",
        "1'000",
    ),
    *("9" * 40, "a" * 300, "=1+1", " ", "\t", "\ufeff", "\0", "^a$", "*", "12:30", "1_000"),
)
_ENDS = ("\n", "\n", "\n", "\r\n", "\r", "\n\n", "")
_ENCODINGS = (
    "utf-8",
    "utf-8",
    "utf-8",
    "utf-16",
    "latin-1",
    "utf-8-sig",
    "cp037",
    "utf-7",
    "hex",
    "x",
    "idna",
    "x\0",
)


def make(folder: Path) -> Target:
    def run(choices: Choices) -> None:
        suffix = choices.pick((".csv", ".csv", ".tsv", ".txt", ".csv.gz"))
        delimiter = choices.pick((",", ",", ";", "\t", "|"))
        encoding = choices.pick(_ENCODINGS)
        content = _content(choices, delimiter, encoding)
        path = folder / f"table{suffix}"
        path.write_bytes(gzip.compress(content, 1) if suffix.endswith(".gz") else content)
        if choices.one_in(2) and suffix != ".txt":
            _read_part(path)
            return
        file = TableFile(
            path,
            delimiter=choices.pick((None, delimiter)),
            decimal=choices.pick((".", ".", ",")),
            encoding=encoding,
            missing=choices.pick(((), (), ("a",), ("",), ("\0",))),
            id=choices.pick((None, "a")),
        )
        frame = read(file)
        assert frame.height >= 2
        assert frame.width >= 1
        check_text(frame), code_notes(frame)

    return run


def _content(choices: Choices, delimiter: str, encoding: str) -> bytes:
    """Return rows of random cells, most of them as long as the header, and sometimes damaged."""
    width, end = choices.between(1, 4), choices.pick(_ENDS)
    names = [choices.pick(_CELLS) if choices.one_in(8) else "abcd"[i] for i in range(width)]
    column = [[choices.pick(_CELLS) for _ in range(choices.between(1, 3))] for _ in range(width)]
    lines = [delimiter.join(names)]
    for _ in range(choices.below(8)):
        cells = [choices.pick(some) for some in column]
        lines.append(delimiter.join(cells[: choices.below(width)] if choices.one_in(10) else cells))
    text = end.join(lines) + (end if choices.one_in(2) else "")
    try:
        content = text.encode(encoding)
    except (LookupError, UnicodeError, ValueError):
        content = text.encode("utf-8")
    return choices.damaged(content) if choices.one_in(3) else content


def _read_part(path: Path) -> None:
    part = TextPart(path.name, path)
    try:
        with reading():
            schema, _ = part.look()
            fields = [schema.field(name) for name in schema.names if schema.names.count(name) == 1]
            for batch in part.batches(fields, 3):
                assert batch.num_rows <= 3
    except PartError:
        pass
