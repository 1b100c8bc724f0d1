"""On the phantom CUDA device, cuDNN's recurrent layers keep as much for the backward pass as the real cuDNN says."""

import json
from pathlib import Path

import pytest

from tests.phantom.cuda_stand_in import libraries, needs_torch, run

PROGRAM = """
import ctypes, json, sys

lib = ctypes.CDLL(sys.argv[1])

def make(name):
    made = ctypes.c_void_p()
    getattr(lib, f"cudnnCreate{name}Descriptor")(ctypes.byref(made))
    return made

found = []
for cell, size, hidden, layers, lengths, dropout, directions, kind, projection in json.loads(sys.argv[2]):
    drop, rnn, data = map(make, ("Dropout", "RNN", "RNNData"))
    zero, kept, workspace = ctypes.c_size_t(0), ctypes.c_size_t(0), ctypes.c_size_t(0)
    lib.cudnnSetDropoutDescriptor(drop, None, ctypes.c_float(dropout), None, zero, ctypes.c_ulonglong(0))
    output = projection or hidden
    lib.cudnnSetRNNDescriptor_v8(rnn, 0, cell, 2, directions - 1, 0, kind, 0, 0, size, hidden, output, layers, drop, 0)
    given = (ctypes.c_int * len(lengths))(*lengths)
    lib.cudnnSetRNNDataDescriptor(data, kind, 1, max(lengths), len(lengths), size, given, None)
    lib.cudnnGetRNNTempSpaceSizes(None, rnn, 1, data, ctypes.byref(workspace), ctypes.byref(kept))
    found.append(kept.value)
print(json.dumps(found))
"""
RELU, TANH, LSTM, GRU = range(4)
FLOAT, HALF = 0, 2
# Cell, input, hidden size, layers, lengths of sequences, dropout, directions, type, projection (0: none), and what
# cudnnGetRNNTempSpaceSizes of cuDNN 9.20 said without a card.
CASES = [
    (LSTM, 28, 128, 2, [28] * 100, 0.0, 1, FLOAT, 0, 15769856),
    (LSTM, 224, 257, 3, [9] * 5, 0.3, 2, FLOAT, 0, 1584768),
    (LSTM, 47, 290, 4, [33, 21], 0.3, 2, HALF, 0, 1469792),
    (LSTM, 139, 277, 2, [18, 9, 8, 4], 0.0, 1, FLOAT, 0, 475616),
    (LSTM, 89, 246, 3, [38] * 3, 0.3, 2, FLOAT, 205, 5071616),
    (LSTM, 263, 129, 4, [40, 14, 6, 4, 3], 0.3, 2, FLOAT, 25, 1928448),
    (LSTM, 156, 155, 1, [21, 11, 9, 9, 5, 4], 0.0, 1, HALF, 99, 121760),
    (GRU, 206, 167, 3, [32] * 2, 0.0, 1, FLOAT, 0, 855296),
    (GRU, 188, 99, 3, [3] * 3, 0.3, 2, FLOAT, 0, 143744),
    (GRU, 100, 194, 4, [33, 14, 7], 0.0, 2, FLOAT, 0, 2263072),
    (TANH, 37, 138, 1, [26] * 5, 0.0, 1, FLOAT, 0, 72032),
    (TANH, 248, 118, 3, [40], 0.3, 1, FLOAT, 0, 95872),
    (RELU, 6, 239, 2, [24, 16, 11, 2, 1], 0.3, 1, FLOAT, 0, 158784),
]


@needs_torch
def test_the_reserve_space_is_that_of_cudnn(tmp_path):
    library = next(iter(sorted(Path(libraries()).glob("libcudnn.so.*"))), None)
    if library is None:
        pytest.skip("this torch has no cuDNN")
    done = run(["-c", PROGRAM, library, json.dumps([case[:-1] for case in CASES])], tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [case[-1] for case in CASES]
