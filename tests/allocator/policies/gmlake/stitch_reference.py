"""GMLake's allocator in plain objects, chunk by chunk and as slow as possible: the reference for the compiled one.

A chunk is 2 MiB of a large range (512 bytes of a small one) and knows the tensor that uses it. Free blocks are not
stored: they are searched on demand, as the longest runs of free chunks. Stitched blocks are lists of chunks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from memdiag.allocator.policies.gmlake.settings import NO_LIMIT, GMLakeSettings

MIB = 1 << 20
CHUNK = 2 * MIB
GRAIN = 512
SMALL = MIB


class OutOfMemory(Exception):
    pass


@dataclass
class Range:
    number: int
    stream: int
    small: bool
    owners: list[int | None]

    @property
    def unit(self) -> int:
        return GRAIN if self.small else CHUNK

    @property
    def size(self) -> int:
        return len(self.owners) * self.unit

    def free_runs(self) -> list[tuple[int, int]]:
        """Returns begin and length of each longest run of free chunks."""
        runs: list[tuple[int, int]] = []
        for at, owner in enumerate(self.owners):
            if owner is None and runs and sum(runs[-1]) == at:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            elif owner is None:
                runs.append((at, 1))
        return runs


Chunk = tuple[Range, int]


@dataclass
class Stitched:
    stream: int
    chunks: list[Chunk]
    in_use: bool = True

    @property
    def size(self) -> int:
        return len(self.chunks) * CHUNK

    def is_idle(self) -> bool:
        return not self.in_use and all(found.owners[at] is None for found, at in self.chunks)


@dataclass
class Tensor:
    number: int
    asked: int
    chunks: list[Chunk]
    stitched: Stitched | None
    uses: dict[int, int] = field(default_factory=dict)  # stream, and its event once the block is freed
    is_pending: bool = False

    @property
    def size(self) -> int:
        return sum(found.unit for found, _ in self.chunks)


class Allocator:
    def __init__(
        self, settings: GMLakeSettings, capacity: int | None, done: str, fraction: float | None = None
    ) -> None:
        self.settings, self.capacity, self.done = settings, capacity, done
        self.limit = None if fraction is None or capacity is None else int(fraction * capacity)
        self.ranges: list[Range] = []
        self.num_ranges = self.external = 0
        self.tensors: dict[int, Tensor] = {}
        self.stitched: list[Stitched] = []  # the oldest first
        self.issued: dict[int, int] = {}
        self.finished: dict[int, int] = {}
        self.retries = self.ooms = self.device_allocs = self.device_frees = self.maps = 0
        self.how = ""

    # ---------------------------------------------------------------------------------------------------------- sums

    @property
    def reserved(self) -> int:
        return sum(each.size for each in self.ranges)

    @property
    def active(self) -> int:
        return sum(each.size for each in self.tensors.values())

    @property
    def allocated(self) -> int:
        return sum(each.size for each in self.tensors.values() if not each.is_pending)

    @property
    def requested(self) -> int:
        return sum(each.asked for each in self.tensors.values())

    # --------------------------------------------------------------------------------------------------------- calls

    def malloc(self, number: int, asked: int, stream: int) -> Tensor:
        self.poll()
        size = max(GRAIN, -(-asked // GRAIN) * GRAIN)
        small = size <= SMALL
        if not small:
            size = -(-size // CHUNK) * CHUNK
        found = self.existing(size, small, stream)
        may = not small and size >= self.settings.frag_limit_bytes
        if found is None and may and self.settings.level <= 0:
            found = self.glue(size, stream)
        if found is None:
            found = self.fresh(size, small, stream)
        if found is None and self.release_oversize(size, small, stream):
            found = self.fresh(size, small, stream)
        if found is None and may and self.settings.level <= 1:
            found = self.glue(size, stream)
        if found is None:
            self.flush()
            self.retries += 1
            found = self.fresh(size, small, stream)
        if found is None and may and self.settings.level <= 2:
            found = self.glue(size, stream)
        if found is None:
            self.ooms += 1
            self.how = "nothing"
            raise OutOfMemory
        chunks, stitched = found
        if stitched is not None and sum(each.size for each in self.stitched) > self.settings.collect_bytes:
            self.stitched = [each for each in self.stitched if each.in_use]
        tensor = Tensor(number, asked, chunks, stitched)
        for home, at in chunks:
            assert home.owners[at] is None
            home.owners[at] = number
        self.tensors[number] = tensor
        return tensor

    def free(self, number: int, *, recorded: bool) -> bool:
        tensor = self.tensors.get(number)
        if tensor is None or tensor.is_pending:
            return False
        tensor.is_pending = True
        for stream in tensor.uses:
            self.issued[stream] = self.issued.get(stream, 0) + 1
            tensor.uses[stream] = self.issued[stream]
        if not recorded and not tensor.uses:
            self.finish(tensor)
        return True

    def complete_free(self, number: int) -> bool:
        tensor = self.tensors.get(number)
        if tensor is None or not tensor.is_pending:
            return False
        self.finish(tensor)
        return True

    def record_stream(self, number: int, stream: int) -> bool:
        tensor = self.tensors.get(number)
        if tensor is None or tensor.is_pending:
            return False
        if self.done != "recorded" and stream != tensor.chunks[0][0].stream:
            tensor.uses.setdefault(stream, 0)
        return True

    def complete(self, stream: int) -> None:
        for each, issued in self.issued.items():
            if stream in (-1, each):
                self.finished[each] = issued

    def empty_cache(self) -> None:
        self.flush()
        self.stitched = [each for each in self.stitched if each.in_use]

    # ------------------------------------------------------------------------------------------------------- searches

    def blocks(self, small: bool, stream: int) -> list[tuple[int, Range, int]]:
        """Returns size, range and first chunk of all free blocks, the smallest first, equal ones by address."""
        found = [
            (length * home.unit, home.number, home, at)
            for home in self.ranges
            if home.small == small and home.stream == stream
            for at, length in home.free_runs()
        ]
        return [(size, home, at) for size, _, home, at in sorted(found, key=lambda each: (each[0], each[1], each[3]))]

    def existing(self, size: int, small: bool, stream: int) -> tuple[list[Chunk], Stitched | None] | None:
        fitting = [block for block in self.blocks(small, stream) if block[0] >= size]
        limit = self.settings.max_split_bytes
        if fitting:
            there, home, at = fitting[0]
            if size < limit <= there or (size >= limit and there >= size + 20 * MIB):
                return None
            self.how = "exact" if there == size else "cut"
            return self.part(home, at, there, size), None
        if small:
            return None
        for each in sorted(self.stitched, key=lambda each: each.size):  # stable: among equals the oldest
            if each.stream == stream and size <= each.size <= size * self.settings.reuse_limit and each.is_idle():
                each.in_use = True
                self.how = "reused"
                return each.chunks[: size // CHUNK], each
        return None

    def part(self, home: Range, at: int, there: int, size: int) -> list[Chunk]:
        """Returns the chunks of one free block that a request gets."""
        if not home.small and size >= self.settings.max_split_bytes:
            size = there
        return [(home, at + k) for k in range(size // home.unit)]

    def glue(self, size: int, stream: int) -> tuple[list[Chunk], Stitched | None] | None:
        blocks = self.blocks(False, stream)
        if len(blocks) < 2 or sum(there for there, _, _ in blocks) < size:
            return None
        chunks: list[Chunk] = []
        for there, home, at in reversed(blocks):
            chunks += [(home, at + k) for k in range(there // CHUNK)]
            if len(chunks) * CHUNK >= size:
                break
        stitched = Stitched(stream, chunks[: size // CHUNK])
        self.stitched.append(stitched)
        self.maps += size // CHUNK
        self.how = "stitched"
        return stitched.chunks, stitched

    # --------------------------------------------------------------------------------------------------------- driver

    def fresh(self, size: int, small: bool, stream: int) -> tuple[list[Chunk], Stitched | None] | None:
        def wanted_for(bytes_: int) -> int:
            return CHUNK if small else 20 * MIB if bytes_ < 10 * MIB else bytes_

        wanted = wanted_for(size)
        if self.limit is not None and self.reserved + wanted > self.limit:
            return None
        adds = self.settings.adds_missing and not small and size >= self.settings.frag_limit_bytes
        if adds:
            free = sum(there for there, _, _ in self.blocks(False, stream))
            if free >= size:
                return None
            wanted = wanted_for(size - free)
            adds = wanted < size
        if self.capacity is not None and self.reserved + wanted > self.capacity - self.external:
            return None
        home = Range(self.num_ranges, stream, small, [None] * (wanted // (GRAIN if small else CHUNK)))
        self.num_ranges += 1
        self.ranges.append(home)
        self.device_allocs += 1
        self.maps += 0 if small else wanted // CHUNK
        if adds:
            found = self.glue(size, stream)
            self.how = "added"
            return found
        self.how = "new"
        return self.part(home, 0, wanted, size), None

    def give_back(self, home: Range) -> None:
        self.ranges.remove(home)
        self.device_frees += 1
        # A stitched block that lost a part is useless; one in use is removed with its tensor.
        self.stitched = [
            each for each in self.stitched if each.in_use or all(owner is not home for owner, _ in each.chunks)
        ]

    def flush(self) -> None:
        for tensor in [each for each in self.tensors.values() if each.is_pending]:
            self.finish(tensor)
        for home in [each for each in self.ranges if all(owner is None for owner in each.owners)]:
            self.give_back(home)

    def release_oversize(self, size: int, small: bool, stream: int) -> bool:
        limit = self.settings.max_split_bytes
        if limit == NO_LIMIT:
            return False
        want, got = max(size, limit), 0
        blocks = self.blocks(small, stream)
        fitting = [block for block in blocks if block[0] >= want]
        for there, home, _ in fitting[:1] or reversed(blocks):
            if there < limit or got >= want:
                break
            if there == home.size:
                got += there
                self.give_back(home)
        return got >= want

    # -------------------------------------------------------------------------------------------------------- streams

    def poll(self) -> None:
        if self.done == "recorded":
            return
        for tensor in [each for each in self.tensors.values() if each.is_pending]:
            over = all(event <= self.finished.get(stream, 0) for stream, event in tensor.uses.items())
            if self.done == "now" or over:
                self.finish(tensor)

    def finish(self, tensor: Tensor) -> None:
        for home, at in tensor.chunks:
            assert home.owners[at] == tensor.number
            home.owners[at] = None
        stitched = tensor.stitched
        if stitched is not None:
            stitched.in_use = False
            if any(home not in self.ranges for home, _ in stitched.chunks):
                self.stitched.remove(stitched)
        del self.tensors[tensor.number]
