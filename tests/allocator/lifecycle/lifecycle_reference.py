"""MindSpeed's lifetime-segregated allocator in plain objects, line by line: what the compiled one is held against.

As slow as it is simple: tables are sets that are walked, pools are lists that are searched, a segment is the list of blocks that covers
it. Nothing is shared with the package but the numbers of calls and marks, so that one mistake cannot be made on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1 << 20
NO_LIMIT = 1 << 62
NEVER = 1 << 62  # the end of what is not freed in its window
DEFAULT, LONG = "default", "long"
GRAIN, SMALL = 512, MIB
SMALL_SEGMENT, LARGE_SEGMENT, LARGE_FROM, PAGE = 2 * MIB, 20 * MIB, 10 * MIB, 2 * MIB
VERY_LARGE = 1_800_000_000  # blocks that small and temporary work does not nibble at
PREJUDGED = 200 * MIB
MUCH_LARGER = 1_395_864_371  # of a segment, by which it exceeds a request
MOST_CANDIDATES = 3


class OutOfMemory(Exception):
    """The request failed; the allocator goes on."""


def up(number: int, unit: int) -> int:
    return (number + unit - 1) // unit * unit


# ---------------------------------------------------------------------------------------------------------------- lifetimes


class Table:
    """What one kind of window (forward, or step) learns: entries (start, end, size) of this pass, the last one, and new branches."""

    def __init__(self) -> None:
        self.tik = 1
        self.count = 0
        self.entries: set[tuple[int, int, int]] = set()
        self.last: set[tuple[int, int, int]] = set()
        self.history: list[set[tuple[int, int, int]]] = []
        self.look_ups = 0
        self.met_unknown = False

    def look_up(self, size: int) -> tuple[int, int] | None:
        """Start and end of the nearest entry of this size at this place or before it."""
        number = self.look_ups
        self.look_ups += 1
        for table in [self.last, *self.history]:
            for start, end, of in sorted(table, reverse=True):
                if start <= self.tik and of == size:
                    return start, end
        if len(self.last) >= number:
            self.met_unknown = True
        return None

    def end(self) -> None:
        self.look_ups = 0
        self.tik = 1
        self.count += 1
        if self.met_unknown:
            self.history.append(self.entries)
            self.met_unknown = False
        self.last, self.entries = self.entries, set()

    def freed(self, start: int, size: int) -> None:
        self.entries.discard((start, NEVER, size))
        self.entries.add((start, self.tik, size))


@dataclass(eq=False)
class Life:
    """What is remembered of a tensor: where its entries stand."""

    requested: int
    rounded: int
    forward: tuple[int, int] | None = None  # start, and the number of the window
    step: tuple[int, int] | None = None


class Lifetimes:
    """Decides how long a tensor will live."""

    def __init__(self, threshold: float = 0.0) -> None:
        self.threshold = threshold
        self.precise = False
        self.in_forward = False
        self.forward_starts = 0
        self.in_step = False
        self.forward = Table()
        self.step = Table()
        self.predicted: tuple[int, int] | None = None  # what the step tables said of the latest request

    def mark(self, kind: str) -> None:
        if kind == "precise_begin":
            self.precise = True
        elif kind == "precise_end":
            self.precise = False
        elif kind == "forward_begin":
            if not self.precise:
                if self.forward_starts != 0:
                    self.in_forward = True
                self.forward_starts += 1
            self.forward.tik = 1
        elif kind == "forward_end":
            self.in_forward = False
            self.forward.end()
        elif kind == "step_begin":
            self.in_step = True
            self.step.tik = 1
        elif kind == "step_end":
            self.in_step = False
            self.step.end()

    def decide(self, requested: int, rounded: int) -> str:
        self.predicted = None
        if self.precise:
            lifetime = LONG
        elif not self.in_forward:
            lifetime = DEFAULT
        elif not self.forward.last:
            lifetime = LONG
        else:
            found = self.forward.look_up(requested)
            lifetime = LONG if found is not None and found[1] == NEVER else DEFAULT
        if not self.precise and self.in_step:
            self.predicted = self.step.look_up(rounded)
            if self.predicted is not None and self.predicted[1] == NEVER:
                lifetime = LONG
        return DEFAULT if rounded <= self.threshold else lifetime

    def allocated(self, requested: int, rounded: int) -> Life:
        life = Life(requested, rounded)
        if self.in_forward:
            life.forward = (self.forward.tik, self.forward.count)
            self.forward.entries.add((self.forward.tik, NEVER, requested))
        if self.in_step:
            life.step = (self.step.tik, self.step.count)
            self.step.entries.add((self.step.tik, NEVER, rounded))
        self.forward.tik += 1
        self.step.tik += 1
        return life

    def freed(self, life: Life) -> None:
        if life.step is not None and self.in_step and life.step[1] == self.step.count:
            self.step.freed(life.step[0], life.rounded)
        if life.forward is not None and self.in_forward and life.forward[1] == self.forward.count:
            self.forward.freed(life.forward[0], life.requested)


# ---------------------------------------------------------------------------------------------------------------- what is held


@dataclass(eq=False)
class Block:
    segment: Segment
    off: int
    size: int
    used: bool = False
    requested: int = 0

    @property
    def whole(self) -> bool:
        return len(self.segment.blocks) == 1


@dataclass(eq=False)
class Segment:
    number: int
    size: int
    pool: tuple[str, str]  # default or long, small or large
    stream: int
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Settings:
    default_lc_threshold: float = 0.0
    max_split: int = NO_LIMIT
    memory_optimize: bool = False
    alr_max: int = NO_LIMIT
    fraction: float | None = None


class Allocator:
    """The four pools. After each call: ``reserved``, ``allocated``, ``requested`` (bytes), counters, and the latest ``step`` taken."""

    def __init__(self, settings: Settings | None = None, capacity: int | None = None) -> None:
        self.settings = settings or Settings()
        self.capacity = capacity
        self.limit = NO_LIMIT
        if self.settings.fraction is not None:
            self.set_fraction(self.settings.fraction)
        self.external = 0
        self.lifetimes = Lifetimes(self.settings.default_lc_threshold)
        self.segments: list[Segment] = []  # held, in the order in which they were obtained
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
        blocks = block.segment.blocks
        at = blocks.index(block)
        if at + 1 < len(blocks) and not blocks[at + 1].used:
            block.size += blocks.pop(at + 1).size
        if at > 0 and not blocks[at - 1].used:
            blocks[at - 1].size += blocks.pop(at).size

    def empty_cache(self) -> None:
        for segment in list(self.segments):
            if all(not block.used for block in segment.blocks):
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
        block = self._new(own_pool, segment_size, stream)
        if block is None and self.settings.max_split != NO_LIMIT and self._release_oversize(own_pool, size, stream):
            block = self._new(own_pool, segment_size, stream)
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
        return self._new(own_pool, segment_size, stream, retry=True)

    def _plain(self, size: int, pool: tuple[str, str], own: tuple[str, str], stream: int, segment_size: int) -> Block | None:
        candidate = next(iter(self._candidates(size, pool, stream)), None)
        if candidate is None or self._rejected(candidate, size, pool, own, segment_size):
            return None
        return candidate

    def _optimized(self, size: int, pool: tuple[str, str], own: tuple[str, str], stream: int, segment_size: int) -> Block | None:
        """As the source has it: a segment that is not much larger than the request ends the search with nothing."""
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
        """Whether, while the request is predicted to live, something is expected that would want such a segment for itself."""
        predicted = self.lifetimes.predicted
        if predicted is None:
            return False
        step = self.lifetimes.step
        return any(
            predicted[0] < start < predicted[1] and self._segment_size(size, LONG) == segment_size
            for table in [step.last, *step.history]
            for start, _, size in table
        )

    def _candidates(self, size: int, pool: tuple[str, str], stream: int) -> list[Block]:
        """Free blocks that are large enough, the smallest first; of equal ones the lowest address."""
        free = [
            block
            for segment in self.segments
            if segment.pool == pool and segment.stream == stream
            for block in segment.blocks
            if not block.used and block.size >= size
        ]
        return sorted(free, key=lambda block: (block.size, block.segment.number, block.off))

    def _breaks_a(self, candidate: Block, size: int) -> bool:
        limit = self.settings.max_split
        if candidate.size >= limit > size:
            return True
        return size >= limit and candidate.size >= size + LARGE_SEGMENT

    def _rejected(self, candidate: Block, size: int, pool: tuple[str, str], own: tuple[str, str], segment_size: int) -> bool:
        if self._breaks_a(candidate, size):
            return True
        if own == (DEFAULT, "large"):
            in_forward = self.lifetimes.in_forward
            rule_b = candidate.size >= VERY_LARGE and candidate.size - size >= LARGE_SEGMENT and not in_forward
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

    def _new(self, pool: tuple[str, str], size: int, stream: int, *, retry: bool = False) -> Block | None:
        if not retry and self.usable_total is not None and self.reserved + size + PREJUDGED > self.usable_total:
            return None
        if self.reserved + size > self.limit:
            return None
        if self.reserved + size > self.settings.alr_max:
            return None
        fits = self.capacity is None or self.reserved + size <= self.capacity - self.external
        if fits:
            self.reserved += size
            self.device_allocs += 1
        if self.capacity is not None:
            self.usable_total = self.reserved + max(0, self.capacity - self.external - self.reserved)
        if not fits:
            return None
        segment = Segment(self.num_segments, size, pool, stream)
        self.num_segments += 1
        segment.blocks.append(Block(segment, 0, size))
        self.segments.append(segment)
        return segment.blocks[0]

    def _release_oversize(self, pool: tuple[str, str], size: int, stream: int) -> bool:
        limit = self.settings.max_split
        wanted = max(size, limit)
        candidates = self._candidates(wanted, pool, stream)
        if candidates:
            self._release(candidates[0].segment)
            return True
        freed = 0
        for block in reversed(self._candidates(limit, pool, stream)):
            if freed >= wanted:
                break
            freed += block.size
            self._release(block.segment)
        return freed >= wanted

    def _release(self, segment: Segment) -> None:
        self.segments.remove(segment)
        self.reserved -= segment.size
        self.device_frees += 1

    def _cut(self, block: Block, size: int) -> None:
        rest = block.size - size
        if block.segment.pool[1] == "small":
            cut = rest >= GRAIN
        else:
            cut = size < self.settings.max_split and rest > SMALL
        if cut:
            blocks = block.segment.blocks
            blocks.insert(blocks.index(block) + 1, Block(block.segment, block.off + size, rest))
            block.size = size
