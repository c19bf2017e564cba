"""Memory and arithmetic of a step: against what real engines hold, and against sums worked out by hand."""

from dataclasses import asdict
from pathlib import Path

import pytest

from model import AlbertConfig
from model.counts import executed_flops, forward_flops, model_flops, parameter_counts
from pipeline.data.collate import BatchShape
from pipeline.planning import memory as plan_memory
from pipeline.planning.memory import MemorySettings, flash_backward_bytes
from tests.pipeline.workers import processes
from tests.pipeline.workers.cases.plan import BUCKET, Case, measure_all

KINDS = ("weights", "gradients", "optimizer", "activations")
TINY = [Case("albert-tiny", stage, "bf16") for stage in range(4)]
BASE = {"preset": "albert-base", "rows": 1, "layers": 3}
CASES = {
    1: [
        *TINY,
        *(Case("albert-tiny", stage, "fp32") for stage in (0, 3)),
        Case("albert-tiny", 1, "bf16", checkpointing="layer"),
        Case(**BASE, stage=0, precision="bf16"),
        Case(**BASE, stage=1, precision="bf16", checkpointing="layer"),
        Case(**BASE, stage=1, precision="fp32", dropout=0.1),
    ],
    2: [
        *TINY,
        Case(**BASE, stage=2, precision="bf16"),
        Case(**BASE, stage=1, precision="bf16", accumulation=1),
        *(Case("albert-tiny", stage, "bf16", accumulates="fp32") for stage in (1, 2, 3)),
    ],
}


def engine(case: Case, world: int) -> MemorySettings:
    return MemorySettings(
        case.precision, case.stage, world, case.checkpointing, case.accumulation, case.accumulates, bucket=BUCKET
    )


def predicted(case: Case, world: int) -> plan_memory.Memory:
    shape = BatchShape(case.length, 1, case.predictions)
    return plan_memory.memory(case.config, case.rows, shape, engine(case, world))


@pytest.mark.slow
@pytest.mark.parametrize("world", CASES)
def test_memory_is_within_a_tenth_of_what_engines_hold(world: int, tmp_path: Path) -> None:
    for case, held in processes.run(world, measure_all, CASES[world], scratch=tmp_path).items():
        expected = asdict(predicted(case, world))
        for kind in KINDS:
            assert expected[kind] == pytest.approx(held[kind], rel=0.1), (case, kind)
        assert held["buckets"] == plan_memory.bucket_bytes(engine(case, world)), case


def test_a_rank_holds_whole_the_tensors_that_its_slices_cut() -> None:
    # 10 elements in two slices of 5: tensors of 4, 3 and 3. Slice 0 has the first and part of the second: 7.
    # Slice 1 has the second and the third: 6, and of the other group, in slices of 1, an element more.
    assert plan_memory.elements_in_slice([[4, 3, 3]], 2) == 7
    assert plan_memory.elements_in_slice([[4, 3, 3], [1, 1]], 2) == 8
    assert plan_memory.elements_in_slice([[4, 3, 3]], 1) == 10
    assert plan_memory.elements_in_slice([[1]], 4) == 1


XXLARGE = AlbertConfig.preset("albert-xxlarge")
ROW = BatchShape(512, pairs=1, predictions=77)


def test_arithmetic_by_hand() -> None:
    # 12 * 512 * 2 * (4 * 4096^2 + 2 * 4096 * 16384) + 4 * 12 * 512^2 * 4096 + 2 * 512 * 128 * 4096
    #   + 77 * (2 * 4096 * 128 + 2 * 128 * 30000) + 2 * 4096^2
    forward = 2_473_901_162_496 + 51_539_607_552 + 536_870_912 + 672_100_352 + 33_554_432
    assert sum(forward_flops(XXLARGE, 512, 77)) == forward
    assert model_flops(XXLARGE, 512, 77) == 3 * forward == pytest.approx(7.58e12, rel=1e-3)
    # With whole blocks recomputed only projection, heads and pooler run three times instead of four.
    assert executed_flops(XXLARGE, 512, 77, "layer") == 4 * forward - 536_870_912 - 672_100_352 - 33_554_432
    # 6 blocks of 10 tokens; projection, head and pooler, which E = H and a missing sentence head leave out
    blocks, head = 6 * 10 * 2 * (4 * 64 + 2 * 128) + 4 * 6 * 100 * 8, 3 * (2 * 8 * 4 + 2 * 4 * 50)
    assert sum(forward_flops(small(), 10, 3)) == blocks + 2 * 10 * 4 * 8 + head + 2 * 64
    head = 3 * (2 * 8 * 8 + 2 * 8 * 50)
    assert sum(forward_flops(small(embedding_size=8, sentence_head=None), 10, 3)) == blocks + head
    assert model_flops(AlbertConfig.preset("bert-large"), 512, 77) == pytest.approx(1.02e12, rel=0.01)


def test_states_of_xxlarge_by_hand() -> None:
    # 223,158,450 parameters: 2 bytes of weights, 2 of gradients, 12 of fp32 weights and moments: 3.57 GB.
    assert parameter_counts(XXLARGE).total == 223_158_450
    weights, gradients, optimizer = plan_memory.parameter_bytes(XXLARGE, MemorySettings("bf16", 0, 8))
    assert (weights, gradients, optimizer) == (446_316_900, 446_316_900, 2_677_901_400)
    weights, gradients, optimizer = plan_memory.parameter_bytes(XXLARGE, MemorySettings("fp16", 3, 8, max_live=0))
    assert (weights, gradients, optimizer) == (446_316_900 / 8, 446_316_900 / 8, 2_677_901_400 / 8)
    # A copy of 2,677,901,400 bytes fits into 2**32; of the 64th part, 41,842,210, into 2**26.
    assert [plan_memory.copy_bytes(XXLARGE, world) for world in (1, 64)] == [2**32, 2**26]


def test_states_depend_on_stage_accumulation_and_ranks() -> None:
    whole = 446_316_900
    for stage, accumulation, world, weights in ((1, 1, 8, whole), (3, 1, 8, whole / 8 + whole), (3, 1, 1, whole)):
        found = plan_memory.parameter_bytes(XXLARGE, MemorySettings("bf16", stage, world, accumulation=accumulation))
        assert (found[0], found[2]) == (weights, 12 * 223_158_450 / world)
    once, twice, sliced = (
        plan_memory.parameter_bytes(XXLARGE, MemorySettings("bf16", stage, 8, accumulation=accumulation))[1]
        for stage, accumulation in ((1, 1), (1, 2), (2, 2))
    )
    assert whole / 8 <= once == sliced < twice == whole
    weights, gradients, optimizer = plan_memory.parameter_bytes(XXLARGE, MemorySettings("fp32", 0, 8))
    assert (weights, gradients, optimizer) == (2 * whole, 2 * whole, 4 * whole)


def small(**fields: object) -> AlbertConfig:
    """Six layers of two groups: H 8, FFN 16, E 4, V 50."""
    usual = {"vocab_size": 50, "embedding_size": 4, "hidden_size": 8, "num_hidden_layers": 6, "num_hidden_groups": 2}
    usual |= {"num_attention_heads": 2, "intermediate_size": 16, "hidden_dropout_prob": 0.0}
    return AlbertConfig(**{**usual, **fields})


@pytest.mark.parametrize(
    ("config", "precision", "checkpointing", "expected"),
    [
        # 2 rows of 10 tokens, 3 predictions and 2 pairs: 6 blocks, 2 fused projections, embeddings, head, pooler.
        # A block's attention keeps 7 * 8 numbers and 8 bytes of statistics a token, its feed-forward 8 + 2 * 16 and 8.
        (small(), "bf16", "none", 6 * 20 * (120 + 88) + 2 * 3 * 8 * 9 * 2 + 20 * 40 + 6 * 240 + 4 * 32),
        (small(), "fp32", "none", 6 * 20 * (232 + 168) + 2 * 3 * 8 * 9 * 4 + 20 * 56 + 6 * 280 + 4 * 64),
        (small(), "bf16", "layer", 6 * 20 * 16 + 864 + 800 + 1440 + 128),
        # A byte for each number that dropout may take: 8 twice a block, 4 of the embeddings.
        (small(hidden_dropout_prob=0.1), "bf16", "none", 6 * 20 * (128 + 96) + 864 + 20 * 44 + 1440 + 128),
        # E = H: no projection keeps its input; no sentence head: no pooler.
        (small(embedding_size=8, sentence_head=None), "bf16", "none", 24960 + 864 + 20 * 40 + 6 * (32 * 2 + 200)),
    ],
)
def test_activations_by_hand(config: AlbertConfig, precision: str, checkpointing: str, expected: int) -> None:
    engine = MemorySettings(precision, 1, 1, checkpointing)
    assert plan_memory.activation_bytes(config, 2, BatchShape(10, pairs=2, predictions=3), engine) == expected


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        # Of 1000 parameters. Logits and their gradient: 6 * 50 * (2 + 4) bytes in 16 bits, 6 * 50 * 8 in fp32.
        (MemorySettings("fp32", 0, 1), 2400),
        (MemorySettings("fp32", 0, 4), 4000),  # the copy of the gradients that is reduced is more than the logits
        (MemorySettings("bf16", 0, 4), 4000),  # and so are the fp32 gradients of the update
        (MemorySettings("bf16", 1, 4, bucket=300), 1800 + 600),
        (MemorySettings("bf16", 1, 4, bucket=300, overlap=True), 1800 + 1200),
        (MemorySettings("bf16", 2, 4, bucket=3000), 2000 + 6000),  # the bucket is whole, the copy only what is in it
        (MemorySettings("bf16", 3, 4, bucket=300, overlap=True), 1800 + 600),  # stage 3 has one bucket
        (MemorySettings("bf16", 3, 1, bucket=300), 4000 + 600),  # and keeps it during the update,
        (MemorySettings("bf16", 2, 1, bucket=300), 4000),  # where stage 2 has none
        (MemorySettings("bf16", 1, 4, "layer", bucket=300), 20 * (208 - 16) + 1800 + 600),
    ],
)
def test_buffers_by_hand(engine: MemorySettings, expected: int) -> None:
    assert plan_memory.buffer_bytes(small(), 1000, 2, BatchShape(10, pairs=2, predictions=3), engine) == expected


@pytest.mark.parametrize(
    ("rows", "pairs", "sequences", "expected"),
    [
        # (512 rows + 128 sequences) tokens of 64 heads of 64 numbers of 4 bytes. The offsets have one of four lengths
        # from each power of two to the next: 8 x 5 = 40, 64 x 2 = 128, 64 x 5 = 320; 64 x 33 = 2112 becomes 2560, and
        # 85 x 33 = 2805 becomes 3072.
        (8, 4, 40, (4096 + 5120) * 16384),  # 0.15 GB
        (64, 1, 128, (32768 + 16384) * 16384),  # 0.81 GB
        (64, 4, 320, (32768 + 40960) * 16384),  # 1.21 GB
        (64, 32, 2560, (32768 + 327_680) * 16384),  # 5.91 GB
        (85, 32, 3072, (43520 + 393_216) * 16384),  # 7.16 GB
    ],
)
def test_what_flash_attention_takes_by_hand(rows: int, pairs: int, sequences: int, expected: int) -> None:
    assert flash_backward_bytes(512 * rows, sequences, 64, 64) == expected
    shape = BatchShape(512, pairs=pairs, predictions=77)
    assert plan_memory.attention_bytes(XXLARGE, rows, shape, "fp16") == expected
    assert plan_memory.attention_bytes(XXLARGE, rows, shape, "fp32") == 0
    # It takes the place of the gradient of the logits, which needs 4 bytes a number.
    numbers = rows * 77 * 30000
    found = plan_memory.buffer_bytes(XXLARGE, 0, rows, shape, MemorySettings("fp16", 0, 1))
    assert found == 2 * numbers + max(4 * numbers, expected)


def test_flash_attention_by_heads() -> None:
    # It pads heads of 72 numbers to 96 and those above 192 to 256.
    assert [flash_backward_bytes(100, 1, 2, width) for width in (64, 72, 192, 200)] == [
        228 * 2 * padded * 4 for padded in (64, 96, 192, 256)
    ]
    assert plan_memory.attention_bytes(small(), 2, BatchShape(10, pairs=2, predictions=3), "bf16") == 0  # heads of 4


@pytest.mark.parametrize("checkpointing", ["none", "layer"])
@pytest.mark.parametrize("gigabytes", [1, 5, 40, 80])
def test_the_largest_micro_batch_fits_and_the_next_does_not(checkpointing: str, gigabytes: int) -> None:
    engine = MemorySettings("fp16", 1, 8, checkpointing, bucket=224_000_000)
    rows = plan_memory.largest_micro_batch(XXLARGE, ROW, engine, gigabytes * 1e9)
    assert plan_memory.memory(XXLARGE, rows + 1, ROW, engine).total > gigabytes * 1e9
    assert rows == 0 or plan_memory.memory(XXLARGE, rows, ROW, engine).total <= gigabytes * 1e9
    assert (rows == 0) == (gigabytes == 1)
