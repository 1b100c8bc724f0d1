"""The rules of ``memdiag.sizes.cuda``, for compiled loops."""

from __future__ import annotations

from memdiag.sizes import cuda
from memdiag.trace.compiled import lean_part

get_allocation_size = lean_part(cuda.get_allocation_size)
should_split = lean_part(cuda.should_split)
oversize_from = lean_part(cuda.oversize_from)
