"""Random access to .bz2 files, so that many ranks can read one file at once.

A bzip2 stream is a sequence of blocks of at most 900 kB, which can be decompressed one by one. Each begins with a
48-bit mark, at any bit; another mark ends the stream. A search for the marks gives positions to start at, in files of
one stream or many. So the index of a multistream export is not needed.
"""

import bz2
import mmap
from collections.abc import Iterator
from pathlib import Path

from common.errors import UserError

_BLOCK_MARK = 0x314159265359
_END_MARK = 0x177245385090
_MARK_BITS = 48
_TAIL_BYTES = 11  # the end mark, 32 bits of checksum, and padding to a whole byte


class Bzip2File:
    """A .bz2 file of any number of streams. UserError: it is not a .bz2 file, or its end is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            if file.read(3) != b"BZh":
                raise UserError(f"{path} is not a bzip2 file; give the export as it was downloaded")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.size = len(self._data)
        if not any(kind == _END_MARK for _, kind in self._marks(self.size - _TAIL_BYTES, self.size)):
            raise UserError(f"{path} is cut off: its last bzip2 block has no end; download it again")

    def blocks(self, start: int) -> Iterator[tuple[int, bytes | None]]:
        """Yields (byte where it begins, decompressed bytes) of each block that begins at byte `start` or later.

        The decompressed bytes are None if the block is damaged. If a mark is damaged, two blocks count as one. The bits
        of a mark also occur by chance inside a block, once in 10^14 bits; that block counts as two damaged ones.
        """
        position = self._next_mark(start * 8)
        while position is not None:
            bit, kind = position
            following = self._next_mark(bit + _MARK_BITS)
            if kind == _BLOCK_MARK:
                yield bit // 8, self._decompress(bit, following[0]) if following else None
            position = following

    def _decompress(self, begin: int, end: int) -> bytes | None:
        """Decompresses the block between two bit positions as a stream of its own; None if it is not a block."""
        first, last = begin // 8, -(-end // 8)
        bits = int.from_bytes(self._data[first:last], "big") >> (last * 8 - end)
        length = end - begin
        bits &= (1 << length) - 1
        checksum = (bits >> (length - _MARK_BITS - 32)) & 0xFFFFFFFF if length > 80 else 0
        bits = (bits << 80) | (_END_MARK << 32) | checksum
        length += 80
        padding = -length % 8
        stream = b"BZh9" + (bits << padding).to_bytes((length + padding) // 8, "big")
        try:
            return bz2.decompress(stream)
        except (OSError, ValueError):
            return None

    def _next_mark(self, bit: int) -> tuple[int, int] | None:
        """Returns the first mark at `bit` or later as (its bit, which mark); None if there is none."""
        first = bit // 8
        # The first search is short, because most blocks are far smaller than the largest.
        begin, reach = first, 256 << 10
        while begin < self.size:
            marks = [mark for mark in self._marks(begin, begin + reach) if mark[0] >= bit]
            if marks:
                return marks[0]
            begin += reach - 8
        return None

    def _marks(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Returns all marks that are entirely between two bytes, in order."""
        begin, end = max(begin, 0), min(end, self.size)
        window = self._data[begin:end]
        marks = []
        for mark in (_BLOCK_MARK, _END_MARK):
            for shift in range(8):
                pattern = (mark << (8 - shift)).to_bytes(7, "big")
                low, high = (1 << (8 - shift)) - 1, (0xFF00 >> shift) & 0xFF
                at = window.find(pattern[1:6], 1)
                while at != -1:
                    tail = window[at + 5] if at + 5 < len(window) else (None if shift else 0)
                    if window[at - 1] & low == pattern[0] and tail is not None and tail & high == pattern[6]:
                        marks.append(((begin + at - 1) * 8 + shift, mark))
                    at = window.find(pattern[1:6], at + 1)
        return sorted(marks)
