"""Random access to .bz2 files, so that many ranks can read one file at once.

A bzip2 stream is a chain of blocks of at most 900 kB that can be decompressed alone. Each begins with a 48-bit mark, at
any bit; a stream ends with another mark. Finding the marks gives places to start at, in a file that one `bzip2` wrote
as well as in a multistream one, whose index is therefore not needed.
"""

import bz2
import mmap
from collections.abc import Iterator
from pathlib import Path

from data_prep.errors import UserError

_BLOCK_MARK = 0x314159265359
_END_MARK = 0x177245385090
_MARK_BITS = 48
_TAIL_BYTES = 11  # the end mark, 32 bits of checksum, and padding to a whole byte
_LARGEST_BLOCK = 1 << 20  # bytes; bzip2 can expand 900 kB of noise by about one percent


class Bzip2File:
    """A .bz2 file of any number of streams. UserError when it is not one, or is cut off at its end."""

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
        """Yields (byte where it begins, decompressed bytes) of each block that begins at byte `start` or after it.

        None stands for a stretch that is damaged, up to the next mark: a block, or two where the mark between is lost.
        """
        position = self._next_mark(start * 8)
        while position is not None:
            bit, kind = position
            following = self._next_mark(bit + _MARK_BITS)
            if kind == _BLOCK_MARK:
                content, following = self._decompress(bit, following)
                if content != b"":
                    yield bit // 8, content
            position = following

    def _decompress(self, bit: int, following: tuple[int, int] | None) -> tuple[bytes | None, tuple[int, int] | None]:
        """Content of the block at `bit`, b"" where its mark was none, None where it is damaged; and the next mark.

        The 48 bits of a mark also turn up by chance inside a block, once in 10^14 bits: then the block goes on
        behind them.
        """
        end = following
        for _ in range(2):
            if end is None:
                break
            content = self._decompress_bits(bit, end[0])
            if content is not None:
                return content, end
            end = self._next_mark(end[0] + _MARK_BITS)
        before = self._last_block_mark(bit)
        if following and before is not None and self._decompress_bits(before, following[0]) is not None:
            return b"", following
        return None, following

    def _decompress_bits(self, begin: int, end: int) -> bytes | None:
        """Decompresses the block between two bit positions by making a whole stream of it; None if it is no block."""
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
        """The first mark at or after a bit: (its bit, which mark); None: there is none up to the end of the file."""
        first = bit // 8
        # Close marks first: most blocks are far smaller than the largest.
        begin, reach = first, 256 << 10
        while begin < self.size:
            found = [mark for mark in self._marks(begin, begin + reach) if mark[0] >= bit]
            if found:
                return found[0]
            begin += reach - 8
        return None

    def _last_block_mark(self, bit: int) -> int | None:
        begin = max(0, bit // 8 - _LARGEST_BLOCK)
        found = [at for at, kind in self._marks(begin, bit // 8 + 8) if kind == _BLOCK_MARK and at < bit]
        return found[-1] if found else None

    def _marks(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Every mark that lies wholly between two bytes, in order."""
        begin, end = max(begin, 0), min(end, self.size)
        window = self._data[begin:end]
        found = []
        for mark in (_BLOCK_MARK, _END_MARK):
            for shift in range(8):
                pattern = (mark << (8 - shift)).to_bytes(7, "big")
                low, high = (1 << (8 - shift)) - 1, (0xFF00 >> shift) & 0xFF
                at = window.find(pattern[1:6], 1)
                while at != -1:
                    tail = window[at + 5] if at + 5 < len(window) else (None if shift else 0)
                    if window[at - 1] & low == pattern[0] and tail is not None and tail & high == pattern[6]:
                        found.append(((begin + at - 1) * 8 + shift, mark))
                    at = window.find(pattern[1:6], at + 1)
        return sorted(found)
