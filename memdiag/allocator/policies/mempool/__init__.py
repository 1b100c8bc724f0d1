"""PyTorch's and torch_npu's caching allocators with private pools that the program opens itself (``torch.cuda.MemPool``)."""
