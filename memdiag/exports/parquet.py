"""Tensors, events and call stacks as Parquet: for pandas, DuckDB, Spark.

The columns are those of the CSV files, with their types.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from memdiag.errors import MemdiagError
from memdiag.exports.csv_tables import file_of
from memdiag.exports.model import Wanted, whole_file
from memdiag.exports.tables import Column, Tables, Text
from memdiag.text import phrase
from memdiag.trace.model import Trace

SUFFIXES = (".parquet",)


def write(trace: Trace, path: Path, wanted: Wanted) -> list[Path]:
    """Writes one file per table; returns them.

    Raises:
        MemdiagError: pyarrow is not installed.
    """
    try:
        pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")  # has no types
    except ImportError:
        raise MemdiagError(phrase("errors.pyarrow"), "pip install 'memdiag[parquet]'") from None
    tables = Tables(trace, wanted)
    files = {table: file_of(path, table, wanted.tables, ".parquet") for table in wanted.tables}
    packing = "zstd" if pa.Codec.is_available("zstd") else "snappy"
    for table, file in files.items():
        with whole_file(file) as raw:
            writer = None
            for part in tables.parts(table):
                arrays = {name: _array(pa, column) for name, column in part.columns.items()}
                some = pa.table(arrays)
                writer = writer or pq.ParquetWriter(raw, some.schema, compression=packing)
                writer.write_table(some)
            if writer is not None:
                writer.close()
    return list(files.values())


def _array(pa: Any, column: Column) -> Any:
    if not isinstance(column, Text):
        return pa.array(column)
    words = list(column.words)
    codes = np.asarray(column.codes, np.int64)
    codes = np.where(codes < 0, codes + len(words), codes)
    used, index = np.unique(codes, return_inverse=True)
    return pa.DictionaryArray.from_arrays(
        pa.array(index.astype(np.int32)), pa.array([words[code] for code in used.tolist()], pa.string())
    )
