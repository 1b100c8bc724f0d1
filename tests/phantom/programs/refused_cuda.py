"""Asks the phantom CUDA device for a product of sparse matrices, which it cannot imitate: an error that says so must come, and no crash."""

import sys

import torch

x = torch.eye(2).to_sparse_csr().cuda()
try:
    x @ x
except RuntimeError as error:
    sys.exit(0 if "cusparse" in str(error).lower() else f"another error: {error}")
sys.exit("there was no error")
