"""Heterogeneous storage: what moves to the host or to disk while it is not needed, and what that leaves on the device.

passes.py     forward, backward and optimizer passes
modules.py    when the code of each module runs
windows.py    from when to when each tensor is not needed
clock.py      when events happen
settings.py   what was asked for, under the names that MindSpore's memory offload gave them
links.py      how fast copies are
schedule.py   when each copy begins and ends, one after the other on each way
waits.py      where the program waits for room
choose.py     which windows are used: all of some kind (forced), or as many as it takes (automatic)
host.py       the pinned pool that receives them
rewrite.py    what the program then asks of the device's allocator
plan.py       a plan: all of the above for one recording
predict.py    makes plans and replays them until one fits
report.py     the report on a plan
howto.py      snippets and settings that carry it out
"""
