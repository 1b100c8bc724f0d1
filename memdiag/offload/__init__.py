"""Offloading: which tensors move to the host or to disk while they are idle, and how much device memory that saves.

passes.py     forward, backward and optimizer passes
modules.py    when the code of each module runs
windows.py    when each tensor is idle
clock.py      event times
settings.py   the requested settings, under the names of MindSpore's memory offload
links.py      copy speeds
schedule.py   begin and end of each copy, sequential per direction
queues.py     the copy queues, compiled
waits.py      waits of the program for free device memory
choose.py     the choice of tensors: all of a kind (forced), or as many as needed (automatic)
elsewhere.py  memory needed on the host and on disk
host.py       the pinned pool on the host
overflow.py   moves to disk if the host is full
rewrite.py    the requests to the device's allocator with the moves
plan.py       the complete plan for one recording
predict.py    makes plans and replays them until one fits
detail.py     the result of a simulated run
report.py     the report on a plan
howto.py      snippets and settings that carry it out
snippet.py    the PyTorch snippet
"""
