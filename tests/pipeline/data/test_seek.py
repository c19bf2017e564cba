"""A set of four billion tokens: opened and read in the middle of the third epoch without memory to speak of."""

from benchmarks import seek


def test_four_billion_tokens_take_no_memory_to_speak_of() -> None:
    found = seek.measure(tokens=4_000_000_000, ranks=4096)
    assert found["tokens"] > 3.99e9
    # A list of the rows' order alone would be 63 MB, the tokens 8 GB; what there is are imports and buffers.
    assert found["megabytes"] < 50
