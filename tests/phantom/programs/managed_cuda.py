"""Uses managed memory on the simulated CUDA device from the host, as bitsandbytes' paged optimizers do; prints JSON."""

import ctypes
import json

import torch

SIZE = 1 << 40  # more than the device has
torch.zeros(1, device="cuda")
runtime = ctypes.CDLL("libcudart.so.13" if torch.version.cuda.startswith("13") else "libcudart.so.12")
runtime.cudaFree.argtypes = (ctypes.c_void_p,)
runtime.cudaMemset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
free, _ = torch.cuda.mem_get_info()
address = ctypes.c_void_p()
statuses = [runtime.cudaMallocManaged(ctypes.byref(address), ctypes.c_size_t(SIZE), 1)]
statuses.append(runtime.cudaMemset(address, 7, 4096))
values = (ctypes.c_ubyte * 8).from_address(address.value)
values[1] = 3
seen = list(values)[:3]
after, _ = torch.cuda.mem_get_info()
statuses.append(runtime.cudaFree(address))
print(json.dumps({"statuses": statuses, "values": seen, "taken": free - after}))
