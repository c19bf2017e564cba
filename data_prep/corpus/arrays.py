"""The arrays of numbers that the search for duplicates keeps in files while it runs."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.errors import UserError, one_line
from common.files.atomic import replacing
from common.files.checksums import file_checksum


def write_array(path: Path, array: NDArray) -> dict[str, object]:
    """Writes `array` to a .npy file. Returns its entry for the ledger."""
    content = io.BytesIO()  # if np.save itself meets a full disk, its error does not tell
    np.save(content, np.ascontiguousarray(array))
    with replacing(path) as temporary:
        temporary.write_bytes(content.getbuffer())
    return {"name": path.name, "bytes": path.stat().st_size, "xxh3_128": file_checksum(path)}


def read_array(path: Path, dtype: Any, *shape: int | None) -> NDArray:
    """Maps the array in a .npy file.

    Args:
        dtype: of its numbers.
        shape: of the array; None where any size is right.
    Raises:
        UserError: the file is missing, is damaged, or holds another array.
    """
    try:
        if path.is_symlink() or not path.is_file():
            raise ValueError("it is no regular file")
        # Mapped, because then a header that promises more than the file holds is an error instead of an allocation.
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray) or array.dtype != np.dtype(dtype):
            raise ValueError(f"it does not hold {np.dtype(dtype)}")
        if array.ndim != len(shape) or any(size not in (None, found) for size, found in zip(shape, array.shape)):
            raise ValueError(f"it has the shape {array.shape}")
    except Exception as error:  # also what the parsers of headers and archives raise
        raise UserError(
            f"{path} is damaged ({one_line(error)}); delete {path.parent.parent} and give the same command again"
        ) from None
    return array
