"""The table of dialects: their names, in order, the ANCHORS of each, and the WORDS of all.

``python -m tests.oom.write_anchors`` writes it, and adds new dialects at the end. It exists so that a dialect is
imported only for texts with its anchors. A test compares it with the dialects.
"""

from __future__ import annotations

WORDS = (
    "out_of_resources",
    "halmem",
    "invalid buffer",
    "algorithm to run",
    "create(handle)",
    "scoped vmem",
    "vmrss",
    "exitcode",
    "exit code",
    "exited unexpectedly",
    "\u6740\u6b7b",
    "\u6bba\u6b7b",
    "vram",
    "heap limit",
    "enoughblocks",
    "dispatched on",
    "offloaded to the disk",
)


def _by_dialect(table: str) -> dict[str, tuple[str, ...]]:
    """Returns the anchors by dialect name; in the table, anchors are indented below the name."""
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for line in table.split("\n"):
        if line.startswith(" "):
            found[name] += tuple(line.split(" ")[4:])
        elif line:
            name = line
            found[name] = ()
    return found


ANCHORS = _by_dialect("""
pytorch-cuda
    cudaoutofmemory hipoutofmemory reservedintotalbypytorch isallocatedbypytorch reservedbypytorchbutunallocated
    totalcapacity;
pytorch-xpu
    xpuoutofmemory (xpu allocatememoryblockwithsizelarger error_out_of_device_memory error_out_of_resources
    error_out_of_host_memory mem_object_allocation_failure cl_out_of_
torch-npu
    npuoutofmemory workspaceallocatortriedtoallocate currentactiv (npu reservedintotalbypytorch
    mallocpinmemoryfailed
hccl
    failedtoallocateresource[ ei0011 ei0007 hcclfunctionerror el0004 207001
cann
    el0004 207001 devmm halmem mallocfail currentvarsize drivererror:outofmemory allocdevicememoryfailed
    allocatedevicememoryfailed
mindspore
    outofmemory!!! mallocdevicememoryfailed memorynotenough: totalusedmemstatistics allocdevicemembyeagerfree
    ismorethantotalmemsize memoryisn'tenoughandallocfailed memorymallocfailed cudahostallocfailed
    failed,ret[2],outofmemory mallocforkernel
pytorch-mps
    mpsbackendoutofmemory mpsallocated: invalidbuffersize: commandbufferexitedwitherror commandbuffererrordomain
pytorch-hpu
    pt_devmem allocationfailedforsize:: workspaceallocationofsize
pytorch-malloc-async
    wouldexceedallowedmemory free(accordingtocuda) error:allocationondevice processing!!!allocationondevice
    exceptionmessage: gotanoom
pytorch-eb
    morethan1eb
torch-thc
    thcudacheckfail cudaruntimeerr
nccl
    cudafailure hipfailure failedtocuda failedtohip sharedmemorysegment calltoibv_ ibv_reg_mr(
cublas-cudnn
    _alloc_failed _allocation_failed cudnnalgorithmtorun dnnlibraryinitialization _insufficient_resources
    miopenstatusalloc availabletoallocatebuffer create(handle)
cuda-bare
    error:outofmemory error(2):outofmemory cumem_allocator cudaoutofmemory nvml_success==
jax-xla
    oomwhenallocating exhausted:outofmemoryallocating memorytryingtoallocate memorywhiletryingtoallocate
    bytes)fromdevice bytesonhost bytesfromdevice pinnedhostmemory ondeviceordinal triedtoallocate0bytes
    requesttoallocate0bytes eigenallocator freesystemmemory ofsystemmemory dsttensorisnotinitialized
    cuda_error_out_of_memory failedtoallocatememory[op bytesfornewconstant
xla-tpu
    inmemoryspace scopedvmem thatwasnotpossible exceededhbmcapacity compile-timeoom compiletimehbmoom
tensorflow
    oomwhenallocating exhausted:outofmemoryallocating memorytryingtoallocate memorywhiletryingtoallocate
    bytes)fromdevice bytesonhost bytesfromdevice pinnedhostmemory ondeviceordinal triedtoallocate0bytes
    requesttoallocate0bytes eigenallocator freesystemmemory ofsystemmemory dsttensorisnotinitialized
    cuda_error_out_of_memory failedtoallocatememory[op bytesfornewconstant
host-cpu-alloc
    cpuallocator torch:notenoughmemory torch:invalidmemorysize torch:unabletommap unabletoallocate bad_alloc
    badallocation memoryerror cannotallocatememory unabletommap unabletowritetofile unabletoopensharedmemory
    totherightsize pagingfileistoosmall 页面文件太小 winerror1455 oserror1455 error=1455 errorcode1455
    openblaserror:memory
oom-killer
    outofmemory:kill killedprocess oom-kill oom_kill oom_reaper oomkilled systemoomencountered lowonresource:memory
    condition:[memorypressure memorypressure ranout-of-memory oomkiller systemd-oomd duetomemory memorylimit
    :outofmemory out_of_me term_memlimit vmrss exceededlimit hardlimit
host-killed
    dataloaderworker unexpectedbuserror sigkill exitcode:-9 exitcode:137 exitcode137 returncode=-9 returncode-9
    signal:killed signal9 sessioncrashed notebooktriedtoallocate exitcodeis137 killed 杀死 殺死 砍掉 getötet
    processusarrêté ucciso morto бито 죽었음 強制終了 unicestwiony gedood exitcode":137
ray-host
    runninglowonmemory memoryusagethreshold memorypressure rayoutofmemory ofthememoryonnode systemmemorylow
    memoryonthenode objectstorefull objectstorebecauseitisfull byoomkiller
paddle
    outofmemoryerroron allocating<=available pleaseshrinkflags memorypleaseshrink cannotmalloc failtoallocmemory
    cudaerror(2) cannotallocate posix_memalign(&
onnxruntime
    forrequestedbufferofsize smallerthanrequestedbytes cudafailure2 hipfailure2 cudaerrorcudaerrormemory
    hiperrorhiperror cublasfailure3 cudnnfailure 8007000e
cupy
    outofmemorytoallocate outofmemoryallocating cudaruntimeerror:cudaerrormemory cudaruntimeerror:hiperror
    cudadrivererror: bad_alloc rmm_error_out
julia
    outofgpumemorytrying ,error_out_of_memory)
triton-smem
    outofresource: sharedmemorysizelimitexceeded toomuchshareddata
vllm-kv
    maxseqlen maxmodellen kvcacheisneeded kvcachememory forthecacheblocks whenwarmingup largeswapspace auto-fitmax
vllm-startup-free
    freememoryondevice desiredgpumemory errorinmemoryprofiling
sglang
    mem-fraction-static mem_fraction_static outofmemory.trytoloweryourbatchsize outofmemory.trytolower
    thememorycapacityisunbalanced capturecudagraphfailed kvcachepoolisfull notenoughhostmemory outofmemoryhappened
    theprofiledvalue
ggml
    ggml llamarunner bufferofsize cudamallocfailed hipmallocfailed pinnedmemory unabletoallocate currentdevice:
    erroroutofdevicememory erroroutofhostmemory failedtoallocatecompute bufferforkvcache
ollama-host
    modelrequiresmore requesttoolargeforsystem llamarunnerprocess memorylayoutcannotbeallocated
mlx
    malloc_or_wait] malloc] [metal]commandbuffer maximumallowedbuffersize
tensorrt
    errorcode2:outofmemory requestedamountof skippingtactic cudaruntime(outofmemory) insufficientworkspace
    tacticdevicerequest cudaerrorin outofmemoryerrorin getbesttactic
tensorrt-llm
    executorcreationfailed cudaruntimeerrorin
bitsandbytes
    erroroutofmemoryatline
serving
    notenoughmemorytohandle insufficientvramfor insufficientspaceindevice warmupfailed,because inalignedall
host-runtimes
    memoryallocationof java.lang.outofmemoryerror insufficientmemoryforthejavaruntime runtime:outofmemory
    heapoutofmemory cannotallocatevectorofsize cannotallocatememoryblock arrowmemoryerror outofmemoryerror()
    beyondphysicalmemorylimits forexceedingmemorylimits memorybudget memory)failedtoallocate
cuda-driver
    cuda_error_out_of_memory cudaerrormemory hiperroroutofmemory failed:outofmemory synchronize:outofmemory
    'outofmemory' step:outofmemory gpuapicall)outofmemory witherroroutofmemory (2vs.0)outofmemory assert:outofmemory
    erroroutofmemory error2:outofmemory error2outofmemory allocator.c: [cuda]outofmemory bytesofdevicememory
    bytesondevice notenoughgpuvideomemory hsa_status_error_out_of_resources tritonerror[
    cudartunloading:cuda:outofmemory allocationfailedoutofmemory allocatefailedoutofmemory outofmemoryincu outofgpu
    darknet: dark_cuda
opencl
    mem_object_allocation_failure memoryobjectallocationfailure _cl.memoryerror
tinygrad
    bytes:nomemoryisavailable oomwhileallocatingsize cudaerror2,outofmemory
lmdeploy
    noenoughblocks noenoughgpumemoryforruntime
device-map
    dispatchedonthecpu hadweightsoffloadedtothedisk
mlc
    insufficientgpumemoryerror isfalse:cuda:outofmemory rocmhiperror vk_error_out_of_device_memory
host-limits
    overcgroupmemorylimit anout-of-memoryevent duetomemoryusage exceededwith
pytorch-vendors
    musaoutofmemory mluoutofmemory (mlu pytorch_musa_alloc pytorch_mlu_alloc
neuron
    devicememory: failedtoallocatedevicememory failedtoallochostmemory failedtoallocatehostmemory allocationfailure
    onnd
openvino
    maxsizeofmemory cl_out_of_resourcesexception
""")
