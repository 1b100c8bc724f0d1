"""PyTorch's and torch_npu's caching allocators with private pools of the program (``torch.cuda.MemPool``)."""
