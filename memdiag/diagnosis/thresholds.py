"""Every threshold that decides the cause of a failure; they were derived from real messages with known causes.

Shares are fractions of the device, or of the reserved memory if a trace does not contain the device size.
"""

from __future__ import annotations

from memdiag.units import GIB, KIB, MIB, TIB

# Memory of one process outside its allocator that needs no other explanation: context, kernels, libraries and, on
# Ascend, HCCL (2 x 200 MB per communicator) and operator workspaces.
ALLOWANCES = {"npu": 3 * GIB, "hip": 3 * GIB // 2, "xpu": GIB // 2}
ALLOWANCE = GIB

ROUNDING = 11 * MIB  # error of a sum of two printed sizes with two decimals of GiB
GARBAGE = 64 * TIB  # larger than any device: the length was computed from garbage
SMALL_SLACK = 0.03  # share: any run leaves this much slack, so the device is simply full
FEW_OUTSIDE = 0.15  # share: less than this outside the allocator, or free in private pools, is not the main cause
SLACK_TO_FOREIGN = 0.25  # less slack than this share of other processes' memory is not the main cause
SLIGHTLY = 1.1  # times the device: a request below it is larger than the device, not several times as large
WHOLE_DEVICE = 0.9  # share: the driver cannot serve such a request, however much it reports as free
LAST_DROPS = 0.02  # share: the driver may not allocate this much, nor 128 MiB, of its free memory
LAST_DROPS_BYTES = 128 * MIB
JUST_OVER = 1.03  # times the request: with less free memory and slack it may not fit even without fragmentation
CLEAR = 1.2  # times the request: with this much slack there is no doubt that it would fit without fragmentation
PLENTY = 0.1  # share: with this much free, and twice the request, slack is not the cause
FULL = 0.7  # share: allocated memory alone explains the failure
NEARLY_FULL = 0.85  # share: this much live memory leaves no other cause
LIBRARY_HOLDS = 0.25  # share: communication and workspaces never hold as much, but a library with a pool may
HALF = 0.5  # share: its owner is the cause
MOST_OF_DEVICE = 0.8  # share: more than any run leaves unused in its own allocator
MOST_OF_ASCEND_OUTSIDE = 0.3  # share: HCCL and operator workspaces of one training hold at most this much
MUCH_IDLE = 0.25  # share of reserved memory: more than the slack of any successful run
MUCH_FREE = 0.1  # share: below it, the device is simply full
ANY_RUN = 0.02  # share: no run has less slack than this, so settings that reduce it gain nothing
SECOND_FOREIGN = 0.05  # share: other processes that hold this much are worth a second finding
LITTLE_OF_BATCH = 0.1  # share of live memory: if less depends on the batch, a smaller batch is not worthwhile
POOL_MATTERS = 0.03  # share: private pools this large are worth separate remedies
WAITING = 256 * MIB  # freed memory that waits for another stream and is worth a remedy
POOLS_GAP = GIB  # MindSpeed's rule of thumb: consider its pools if more than this is reserved but not allocated
SOON_PASSES = 2  # forward passes whose graphs are retained: growth fills in this many what defragmentation frees
SOON_STEPS = 20  # steps of a leak, likewise
XPU_LARGEST = 4 * GIB  # many Level Zero drivers refuse a block of this size
MPS_HEAP = GIB

# For messages with few numbers. Most contain the size of the request and little else, and their dialect decides.
ABSURD = 4 * TIB  # larger than the memory of any machine that prints these messages
TINY = 4 * KIB  # no accelerator is too full for less: something else refused
HOST_ALIGNED = 256  # device pools allocate multiples of this; a CPU allocator refused a smaller size
LARGE = 256 * MIB  # the request itself may be the problem; a smaller one points to other memory
SMALL = 16 * MIB  # ONNX Runtime: with such a request, memory was already used up
SMALL_BUFFER = 64 * MIB  # llama.cpp: with such a buffer, memory was already used up
HUGE_BUFFER = 24 * GIB  # llama.cpp: larger than the memory of most cards
SMALL_POOL = GIB  # CuPy, JAX, TensorFlow: a full device of a program that holds less belongs to other processes
LITTLE_OWN = 2 * GIB  # Paddle: likewise, if the program holds less than this,
LITTLE_LEFT = 4 * GIB  # holds less than this together with the free memory,
MODEST = 8 * GIB  # and requests less than this
NEAR_LIMIT = 0.98  # fraction of CUDA.jl's limit: the pool rounds up its blocks
WHOLE_POOL = 0.85  # fraction of the device: with a MindSpore pool this large, only the runtime's own memory is left
SURELY_OTHERS = 0.25  # share in use before vLLM starts: other processes hold it
SURELY_ALONE = 0.1  # share in use before vLLM starts: with less than this, the requested fraction is too high
