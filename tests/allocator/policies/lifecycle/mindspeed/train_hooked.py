"""Runs bench/study/train.py with MindSpeed's allocator and hooks: train_hooked.py LIBRARY LOG layer|stack WORDS…

It hooks ``make``, which builds model and optimizer; the forward of each layer, or of the whole stack of layers; each
step, from ``zero_grad`` to the end of the optimizer; and the optimizer's step. It writes the allocator's decisions to
LOG, as rows of process.h.
"""

import runpy
import sys
from pathlib import Path

import torch
from hooks import hook_forward, hook_layers, hook_optimizer, hook_setup, plug_in

TRAIN = Path(__file__).parents[5] / "bench" / "study" / "train.py"


def hook_model(feature, model, hooks):
    """Wraps the forward of the modules that this generation of the feature hooks."""
    if hooks == "layer":
        hook_layers(feature, model)
        return
    for module in model.modules():
        if type(module).__name__ == "TransformerBlock":  # Megatron-core's name of ParallelTransformer
            hook_forward(feature, module)


def main():
    library, log, hooks, *words = sys.argv[1:]
    feature = plug_in(library)
    # torch_npu ends the process if the allocator has no statistics
    for name in (
        "max_memory_allocated",
        "memory_reserved",
    ):
        setattr(torch.cuda, name, lambda *_: 0)
        setattr(torch.npu, name, lambda *_: 0)
    sys.argv = [str(TRAIN), *words]
    program = runpy.run_path(str(TRAIN), run_name="train")

    def hooked_make(make):
        setup = hook_setup(feature, make)

        def made(args):
            model, optimizer = setup(args)
            hook_model(feature, model, hooks)
            clear, step = model.zero_grad_buffer, hook_optimizer(feature, optimizer.step)

            def cleared():
                feature.malloc_recorder_start()
                clear()

            def stepped():
                done = step()
                feature.malloc_recorder_end()
                return done

            model.zero_grad_buffer, optimizer.step = cleared, stepped
            return model, optimizer

        return made

    program["main"].__globals__["make"] = hooked_make(program["make"])
    try:
        program["main"]()
    finally:
        feature.write_log(log.encode())


if __name__ == "__main__":
    main()
