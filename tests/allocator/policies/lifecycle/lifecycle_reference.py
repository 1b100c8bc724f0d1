"""MindSpeed's lifetime-segregated allocator in plain objects, line by line: the reference for the compiled one.

It is as slow as it is simple: pools are lists that are searched, a segment is the list of its blocks, and tables
(``lifecycle_tables``) are sets that are walked. It shares only the numbers of calls and marks with the package, so the
same mistake cannot be on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.allocator.policies.lifecycle.lifecycle_tables import DEFAULT, LONG, NEVER, Life, Lifetimes

MIB = 1 << 20
NO_LIMIT = 1 << 62
GRAIN, SMALL = 512, MIB
SMALL_SEGMENT, LARGE_SEGMENT, LARGE_FROM, PAGE = 2 * MIB, 20 * MIB, 10 * MIB, 2 * MIB
VERY_LARGE = 1_800_000_000  # bytes; temporary requests outside forward do not split free blocks of at least this size
PREJUDGED = 200 * MIB
MUCH_LARGER = 1_395_864_371  # bytes by which a segment must exceed a request to count as much larger
MOST_CANDIDATES = 3
UNKNOWN_DEVICE = 1 << 40  # reserved address space if the device is unknown


class OutOfMemory(Exception):
    """The request failed; the allocator continues."""


def up(number: int, unit: int) -> int:
    return (number + unit - 1) // unit * unit


# ---------------------------------------------------------------------------------------------------------------- state


@dataclass(eq=False)
class Block:
    segment: Segment
    off: int
    size: int
    used: bool = False
    requested: int = 0
    mapped: bool = True  # of an expandable segment: it is backed by memory

    @property
    def whole(self) -> bool:
        return len(self.segment.blocks) == 1


@dataclass(eq=False)
class Segment:
    number: int
    size: int
    pool: tuple[str, str]  # default or long, small or large
    stream: int
    page: int = 0  # page size of an expandable segment; 0 for others
    blocks: list[Block] = field(default_factory=list)

    def join(self, block: Block) -> None:
        """Merges a block with its idle neighbours of the same kind."""
        at = self.blocks.index(block)
        if at + 1 < len(self.blocks) and not self.blocks[at + 1].used and self.blocks[at + 1].mapped == block.mapped:
            block.size += self.blocks.pop(at + 1).size
        if at > 0 and not self.blocks[at - 1].used and self.blocks[at - 1].mapped == block.mapped:
            self.blocks[at - 1].size += self.blocks.pop(at).size

    def cut(self, block: Block, size: int) -> Block:
        """Truncates a block; returns the rest."""
        rest = Block(self, block.off + size, block.size - size, mapped=block.mapped)
        self.blocks.insert(self.blocks.index(block) + 1, rest)
        block.size = size
        return rest


@dataclass
class Settings:
    default_lc_threshold: float = 0.0
    max_split: int = NO_LIMIT
    memory_optimize: bool = False
    alr_max: int = NO_LIMIT
    fraction: float | None = None
    expandable: bool = False


class Allocator:
    """The four pools.

    After each call: ``reserved``, ``allocated``, ``requested`` (bytes), counters, and the last ``step`` used.
    """

    def __init__(self, settings: Settings | None = None, capacity: int | None = None) -> None:
        self.settings = settings or Settings()
        self.capacity = capacity
        self.limit = NO_LIMIT
        if self.settings.fraction is not None:
            self.set_fraction(self.settings.fraction)
        self.external = 0
        self.lifetimes = Lifetimes(self.settings.default_lc_threshold)
        self.segments: list[Segment] = []  # reserved, in the order in which they were obtained
        self.num_segments = 0
        self.usable_total: int | None = None
        self.reserved = self.allocated = self.requested = 0
        self.retries = self.ooms = self.device_allocs = self.device_frees = 0
        self.live: dict[int, tuple[Block, Life]] = {}
        self.path = ""  # how the latest request was served: P1 .. P5

    # ---- calls

    def set_fraction(self, fraction: float) -> None:
        if self.capacity is not None:
            self.limit = int(fraction * self.capacity)

    def malloc(self, tensor: int, requested: int, stream: int = 0) -> Block:
        rounded = max(GRAIN, up(requested, GRAIN))
        self.lifetime = lifetime = self.lifetimes.decide(requested, rounded)
        block = self._find(rounded, lifetime, stream)
        if block is None:
            self.ooms += 1
            self.path = "oom"
            raise OutOfMemory
        self._cut(block, rounded)
        block.used, block.requested = True, requested
        self.live[tensor] = (block, self.lifetimes.allocated(requested, rounded))
        self.allocated += block.size
        self.requested += requested
        return block

    def free(self, tensor: int) -> None:
        block, life = self.live.pop(tensor)
        self.lifetimes.freed(life)
        self.allocated -= block.size
        self.requested -= block.requested
        block.used = False
        block.segment.join(block)

    def empty_cache(self) -> None:
        for segment in list(self.segments):
            if segment.page:
                for block in [block for block in segment.blocks if block.mapped and not block.used]:
                    self._unmap(block)
            elif all(not block.used for block in segment.blocks):
                self._release(segment)

    # ---- the levels

    def _find(self, size: int, lifetime: str, stream: int) -> Block | None:
        kind = "small" if size <= SMALL else "large"
        other = DEFAULT if lifetime == LONG else LONG
        own_pool, other_pool = (lifetime, kind), (other, kind)
        segment_size = self._segment_size(size, lifetime)

        self.path = "P1"
        for pool in (own_pool, other_pool):
            search = self._optimized if self.settings.memory_optimize else self._plain
            block = search(size, pool, own_pool, stream, segment_size)
            if block is not None:
                return block

        self.path = "P2"
        block = self._new(own_pool, size, segment_size, stream)
        if block is None and self.settings.max_split != NO_LIMIT and self._release_oversize(own_pool, size, stream):
            block = self._new(own_pool, size, segment_size, stream)
        if block is not None:
            return block

        self.path = "P3"
        for pool in (other_pool, own_pool):
            block = next(iter(self._candidates(size, pool, stream)), None)
            if block is None or self._breaks_a(block, size):
                continue
            if pool is other_pool and pool == (LONG, "large") and self.lifetimes.in_forward:
                continue
            return block

        if kind == "small":
            self.path = "P4"
            for pool in ((lifetime, "large"), (other, "large")):
                block = next(iter(self._candidates(size, pool, stream)), None)
                if block is not None and not self._breaks_a(block, size):
                    return block

        self.path = "P5"
        self.empty_cache()
        self.retries += 1
        return self._new((lifetime, "large"), size, segment_size, stream, retry=True)  # also for small requests

    def _plain(
        self, size: int, pool: tuple[str, str], own: tuple[str, str], stream: int, segment_size: int
    ) -> Block | None:
        candidate = next(iter(self._candidates(size, pool, stream)), None)
        if candidate is None or self._rejected(candidate, size, pool, own, segment_size):
            return None
        return candidate

    def _optimized(
        self, size: int, pool: tuple[str, str], own: tuple[str, str], stream: int, segment_size: int
    ) -> Block | None:
        """Returns a candidate as the source does: a segment that is not much larger ends the search without result."""
        for candidate in self._candidates(size, pool, stream)[:MOST_CANDIDATES]:
            if self._rejected(candidate, size, pool, own, segment_size):
                return None
            whole = candidate.segment.size
            if whole < size + MUCH_LARGER:
                return None
            if not self._wanted_meanwhile(whole):
                return candidate
        return None

    def _wanted_meanwhile(self, segment_size: int) -> bool:
        """Returns whether a request for a whole segment of this size is expected during the predicted lifetime."""
        step = self.lifetimes.step
        predicted = self.lifetimes.predicted or (step.tik, NEVER)
        return any(
            predicted[0] < start < predicted[1] and self._segment_size(size, LONG) == segment_size
            for table in [step.last, *step.history]
            for start, _, size in table
        )

    def _candidates(self, size: int, pool: tuple[str, str], stream: int) -> list[Block]:
        """Returns sufficiently large free blocks, the smallest first; equal ones by address."""
        free = [
            block
            for segment in self.segments
            if segment.pool == pool and segment.stream == stream
            for block in segment.blocks
            if not block.used and block.mapped and block.size >= size
        ]
        return sorted(free, key=lambda block: (block.size, block.segment.number, block.off))

    def _breaks_a(self, candidate: Block, size: int) -> bool:
        limit = self.settings.max_split
        if candidate.size >= limit > size:
            return True
        return size >= limit and candidate.size >= size + LARGE_SEGMENT

    def _rejected(
        self, candidate: Block, size: int, pool: tuple[str, str], own: tuple[str, str], segment_size: int
    ) -> bool:
        if self._breaks_a(candidate, size):
            return True
        if own == (DEFAULT, "large"):
            in_forward = self.lifetimes.in_forward
            is_nibbled = candidate.size >= VERY_LARGE and candidate.size - size >= LARGE_SEGMENT
            rule_b = pool == own and is_nibbled and not in_forward
            rule_c = pool == (LONG, "large") and in_forward
            return rule_b or rule_c
        if own == (LONG, "large"):
            if pool == (DEFAULT, "large"):
                return True  # rule e
            return candidate.size != segment_size or not candidate.whole  # rule d
        return False

    @staticmethod
    def _segment_size(size: int, lifetime: str) -> int:
        if size <= SMALL:
            return SMALL_SEGMENT
        if lifetime == DEFAULT and size < LARGE_FROM:
            return LARGE_SEGMENT
        return up(size, PAGE)

    def _new(
        self, pool: tuple[str, str], size: int, segment_size: int, stream: int, *, retry: bool = False
    ) -> Block | None:
        if not retry and self.usable_total is not None and self.reserved + segment_size + PREJUDGED > self.usable_total:
            return None
        if self.reserved + segment_size > self.limit:
            return None
        if self.settings.expandable:
            block = self._grow(pool, size, stream)
        elif self.reserved + segment_size <= self.settings.alr_max and self._take(segment_size):
            segment = self._segment(pool, stream, segment_size)
            block = segment.blocks[0]
        else:
            block = None
        if self.capacity is not None:
            self.usable_total = self.reserved + max(0, self.capacity - self.external - self.reserved)
        return block

    def _take(self, size: int) -> bool:
        """Reserves memory from the device; returns whether it has that much."""
        if self.capacity is not None and self.reserved + size > self.capacity - self.external:
            return False
        self.reserved += size
        self.device_allocs += 1
        return True

    def _segment(self, pool: tuple[str, str], stream: int, size: int, page: int = 0) -> Segment:
        segment = Segment(self.num_segments, size, pool, stream, page)
        self.num_segments += 1
        segment.blocks.append(Block(segment, 0, size, mapped=not page))
        self.segments.append(segment)
        return segment

    # ---- expandable segments

    def _grow(self, pool: tuple[str, str], size: int, stream: int) -> Block | None:
        """Returns the lowest run of enough idle bytes that begins with a hole, or with the free block before one."""
        mine = [
            segment for segment in self.segments if segment.page and (segment.pool, segment.stream) == (pool, stream)
        ]
        block = next((found for segment in mine for found in self._places(segment) if self._room(found) >= size), None)
        if block is None:
            page = SMALL_SEGMENT if pool[1] == "small" else LARGE_SEGMENT
            device = UNKNOWN_DEVICE if self.capacity is None else self.capacity
            block = self._segment(pool, stream, up(device + device // 8, page), page).blocks[0]
        segment, begin = block.segment, block.off
        while not block.mapped or block.size < size:
            hole = block if not block.mapped else segment.blocks[segment.blocks.index(block) + 1]
            missing = size if not block.mapped else size - block.size
            bytes_ = up(min(missing, hole.size), segment.page)
            if not self._take(bytes_):
                return None
            if bytes_ < hole.size:
                segment.cut(hole, bytes_)
            hole.mapped = True
            segment.join(hole)
            block = next(each for each in segment.blocks if each.off <= begin < each.off + each.size)
            begin = block.off
        return block

    @staticmethod
    def _places(segment: Segment) -> list[Block]:
        blocks = segment.blocks
        holes = [at for at, block in enumerate(blocks) if not block.mapped]
        return [blocks[at - 1] if at > 0 and not blocks[at - 1].used else blocks[at] for at in holes]

    @staticmethod
    def _room(block: Block) -> int:
        room = 0
        for each in block.segment.blocks[block.segment.blocks.index(block) :]:
            if each.used:
                break
            room += each.size
        return room

    def _unmap(self, block: Block) -> None:
        """Releases the whole pages of a free block."""
        segment, page = block.segment, block.segment.page
        begin, end = up(block.off, page), (block.off + block.size) // page * page
        if begin >= end:
            return
        if end < block.off + block.size:
            segment.cut(block, end - block.off)
        if begin > block.off:
            block = segment.cut(block, begin - block.off)
        block.mapped = False
        self.reserved -= block.size
        self.device_frees += 1
        segment.join(block)
        if len(segment.blocks) == 1:  # nothing remains of it
            self.segments.remove(segment)

    def _release_oversize(self, pool: tuple[str, str], size: int, stream: int) -> bool:
        limit = self.settings.max_split
        wanted = max(size, limit)
        candidates = self._candidates(wanted, pool, stream)
        if candidates and not candidates[0].segment.page:
            self._release(candidates[0].segment)
            return True
        freed = 0
        for block in reversed(self._candidates(limit, pool, stream)):
            if freed >= wanted:
                break
            if not block.segment.page:
                freed += block.size
                self._release(block.segment)
        return freed >= wanted

    def _release(self, segment: Segment) -> None:
        self.segments.remove(segment)
        self.reserved -= segment.size
        self.device_frees += 1

    def _cut(self, block: Block, size: int) -> None:
        rest = block.size - size
        if block.segment.pool[1] == "small" or self.settings.expandable:
            worth = rest >= GRAIN
        else:
            worth = size < self.settings.max_split and rest > SMALL
        if worth:
            block.segment.cut(block, size)
