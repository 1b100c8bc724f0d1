"""The CUDA stand-in: libraries with the names of the toolkit's own, and what it takes to compile them for an installed PyTorch.

``core`` is the device: memory, values, streams, graphs, kernels. ``driver`` is libcuda.so.1, which holds the core;
``runtime`` is libcudart, ``libraries`` the rest of the toolkit. None of NVIDIA's headers is needed: core/abi.h says
what must be known of them. ``standin`` compiles, from the table ``libraries.toml``; ``symbols`` reads what the
installed libraries offer and ask for.
"""
