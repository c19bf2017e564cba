"""The page of all parts."""

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.gpu.speed import FEATURES
from common.text import markdown_table

Result = dict[str, Any]
SPEED_COLUMNS = (
    *("model", "length", "precision", "micro_batch", "system", "dropout", "pairs_per_row"),
    *("tokens_per_second", "rows_per_second", "tflops", "share", "memory_mib"),
)
RUN_COLUMNS = (
    *("model", "preset", "precision", "dropout", "micro_batch", "checkpointing", "loss", "loss_scale"),
    *("overflow_steps", "tokens_per_second", "rows_per_second", "peak_memory_gb", "planned_memory_gb"),
)


def markdown(result: Result) -> str:
    """The page of a result: `benchmarks.shared.report.describe`, and "parts", the files of the parts by name."""
    told = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [f"# {result['hardware']['name']}: what `make gpu` measured", "", f"{told}; {result['date']}."]
    lines += ["docs/gpu.md explains it."]
    for title, section in (
        ("Runs of the presets", _runs),
        ("Profiles", _profiles),
        ("Tests", _tests),
        ("Speed", _speed),
        ("Gain of each feature", _gains),
        ("Several GPUs", _scaling),
        ("Parts that failed", _failed),
    ):
        lines += ["", f"## {title}", "", *(list(section(result["parts"])) or ["None."])]
    return "\n".join(lines)


def _cell(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else "" if value is None else str(value)


def _table(columns: Sequence[str], rows: Sequence[Result]) -> str:
    cells = ([_cell(row.get(name)) for name in columns] for row in rows)
    return markdown_table([name.replace("_", " ") for name in columns], cells)


def _runs(parts: Result) -> Iterator[str]:
    if rows := [row for part in parts.values() for row in part.get("runs", [])]:
        yield _table(RUN_COLUMNS, rows)


def _profiles(parts: Result) -> Iterator[str]:
    for one in (part["profile"] for part in parts.values() if "profile" in part):
        yield (
            f"{one['model']}, {one['precision']}, dropout {one['dropout']}: three steps in {1e3 * one['seconds']:,.1f} "
            f"ms; the device was idle for {1e3 * one['idle_seconds']:,.1f} ms; the host waited {one['host_waits']} "
            f"times for it, {1e3 * one['host_wait_seconds']:,.1f} ms."
        )
        kernels = [(row["name"], f"{1e3 * row['seconds']:,.2f}", row["calls"]) for row in one["kernels"]]
        yield from ("", markdown_table(("kernel", "ms", "calls"), kernels, "lrr"), "")
        if largest := sorted(one.get("largest", {}).items(), key=lambda output: -output[1]):
            cells = [(name, _cell(value)) for name, value in largest]
            yield "Largest absolute outputs in the next step; hidden states: `feed_forward.N.layer_norm`. fp16 ends at"
            yield from ("65,504.", "", markdown_table(("module", "largest"), cells, "lr"), "")


def _tests(parts: Result) -> Iterator[str]:
    for name, part in parts.items():
        if tests := part.get("tests"):
            over = f" over {part['backend']}" if "backend" in part else ""
            passed = sum(told == "passed" for told in tests.values())
            yield f"- {name}{over}: {passed} of {len(tests)} passed"
            yield from (f"    - {test}: {told}" for test, told in tests.items() if told != "passed")
            for test, noted in part.get("recorded", {}).items():
                yield from (f"    - {test}: {one['name']} {one['value']}" for one in noted)


def _speed(parts: Result) -> Iterator[str]:
    speeds = {name: part for name, part in parts.items() if "measurements" in part}
    products = dict[str, float]()  # the best of all parts: other load would make one look slow
    rows = [row for part in speeds.values() for row in part["measurements"]]
    for part in speeds.values():
        precision = part["measurements"][0]["precision"]
        products[precision] = max(part["matrix_product_tflops"], products.get(precision, 0.0))
    for row in rows:
        if "packed_tflops" in row:
            row["share"] = row["packed_tflops"] / products[row["precision"]]
    if not rows:
        return
    yield _table(SPEED_COLUMNS, rows)
    copied = max(part["copy_gigabytes_per_second"] for part in speeds.values())
    yield from (
        "",
        f"Share: of a large matrix product, sustained in the same run with sums in fp32 ({_cell_list(products)} "
        "TFLOP/s), without attention between the sequences of a row. Forward, backward and LAMB. A copy of the GPU's "
        f"memory reads and writes {copied:,.0f} GB/s.",
    )
    for name, part in speeds.items():
        if part["state"]:
            yield from ("", f"During the product of {name}: {_cell_list(part['state'])}.")


def _cell_list(values: Result) -> str:
    return ", ".join(f"{name} {_cell(value)}" for name, value in values.items())


def _gains(parts: Result) -> Iterator[str]:
    rows = list[Result]()
    for name, part in parts.items():
        gains = {row["feature"]: row["gain"] for row in part.get("measurements", []) if "feature" in row}
        if gains:
            rows.append({"part": name.removeprefix("speed-")} | gains)
    if rows:
        yield _table(("part", *FEATURES), rows)
        yield from (
            "",
            "Times as fast with the feature as without. The columns of `transformers` and `blocks`: this model, eager, "
            "over `transformers` on one padded pair a row, or on full blocks without padding. `dropout`, and `dropout "
            "compiled`: this model with all features over `transformers`, both with dropout 0.1. `dropout all`: this "
            "model with dropout and all features over the eager one without.",
        )


def _scaling(parts: Result) -> Iterator[str]:
    if rows := parts.get("scaling", {}).get("scaling"):
        alone = rows[0]["tokens_per_second"]
        linear = [row | {"share_of_linear": row["tokens_per_second"] / row["gpus"] / alone} for row in rows]
        yield _table(("gpus", "tokens_per_second", "share_of_linear"), linear)


def _failed(parts: Result) -> Iterator[str]:
    return (f"- {name}: {part['error']}" for name, part in parts.items() if "error" in part)
