"""The simulated CUDA runtime: libraries with the toolkit's names, and their compilation for a PyTorch.

``core`` is the device: memory, values, streams, graphs, kernels. ``driver`` is libcuda.so.1, which contains the core;
``runtime`` is libcudart, ``libraries`` the rest of the toolkit. NVIDIA's headers are not needed: core/abi.h defines the
necessary parts. ``standin`` compiles, from the table ``libraries.toml``; ``symbols`` reads the symbols that installed
libraries provide and require.
"""
