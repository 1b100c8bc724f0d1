"""Lets gradients be views of the buckets in which DistributedDataParallel reduces them."""

import functools


def gradient_bucket_view():
    """Makes ``DistributedDataParallel`` use ``gradient_as_bucket_view=True``, whatever the program passes."""
    from torch.nn.parallel import DistributedDataParallel

    original = DistributedDataParallel.__init__

    @functools.wraps(original)
    def __init__(self, module, *args, **options):  # noqa: N807 - the name that errors show
        names = original.__code__.co_varnames[2 : original.__code__.co_argcount]
        options.update(zip(names, args, strict=False))
        options["gradient_as_bucket_view"] = True
        original(self, module, **options)

    DistributedDataParallel.__init__ = __init__
