"""The page of all parts: one result of all their files, and the text that is made from it."""

from collections.abc import Iterable, Sequence
from typing import Any

Result = dict[str, Any]
GOALS = {"albert-base": (0.5, 2.0), "albert-xxlarge": (0.75, 1.4)}
"""By model, what is aimed at with rows of 512 tokens: the share of the matrix product, and times `transformers`."""
FEATURES: tuple[str, ...] = (
    *("compile", "chunked_loss", "all", "kernel", "packing", "transformers"),
    *("transformers_compiled", "transformers_blocks", "transformers_blocks_compiled"),
)


def combine(machine: Result, files: dict[str, Result]) -> Result:
    """One result of the files of all parts, by name; `machine` describes where they ran."""
    speeds = {name: one for name, one in files.items() if "gains" in one}
    rows = [row for one in speeds.values() for row in one["measurements"]]
    products: dict[str, float] = {}
    for one in speeds.values():
        precision = one["measurements"][0]["precision"]
        products[precision] = max(one["matrix_product_tflops"], products.get(precision, 0.0))
    tests = {f"{part}: {name}": told for part, one in files.items() for name, told in one.get("tests", {}).items()}
    return {
        **machine,
        "parts": {name: {key: one[key] for key in ("seconds", "error") if key in one} for name, one in files.items()},
        "tests": tests,
        "matrix_product_tflops": products,
        "states": {name.removeprefix("speed-"): one["state"] for name, one in speeds.items() if one.get("state")},
        "copy_gigabytes_per_second": max(
            (one.get("copy_gigabytes_per_second", 0.0) for one in speeds.values()), default=0.0
        ),
        "profiles": [one["profile"] for one in files.values() if "profile" in one],
        "backends": {name: one["backend"] for name, one in files.items() if "backend" in one},
        "runs": [row for one in files.values() for row in one.get("runs", [])],
        "measurements": rows,
        "gains": {name.removeprefix("speed-"): one["gains"] for name, one in speeds.items()},
        **{name: files[name] for name in ("scaling",) if name in files},
    }


def markdown(result: Result) -> str:
    """The page of a result."""
    hardware, versions = result["hardware"], result["versions"]
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        f"# {hardware['name']}: what `make gpu` measured",
        "",
        f"{told}; {result['date']}. docs/gpu.md explains it.",
    ]
    for title, body in (
        ("Runs of the presets", _runs(result)),
        ("Profiles", _profiles(result)),
        ("Tests", _tests(result)),
        ("Speed", _speed(result)),
        ("Gain of each feature", _gains(result)),
        ("Several GPUs", _several(result)),
    ):
        lines += ["", f"## {title}", "", *(list(body) or ["Not run."])]
    failed = [f"- {name}: {part['error']}" for name, part in result["parts"].items() if "error" in part]
    return "\n".join(lines + (["", "## Parts that failed", "", *failed] if failed else []))


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    cells = [" | ".join(map(str, row)) for row in rows]
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {row} |" for row in cells)] if cells else []


def _tests(result: Result) -> Iterable[str]:
    passed = sum(told == "passed" for told in result["tests"].values())
    if result["tests"]:
        yield f"{passed} of {len(result['tests'])} passed."
        yield from (f"- {name}: over {backend}" for name, backend in result["backends"].items())
        yield from (f"- {name}: {told}" for name, told in result["tests"].items() if told != "passed")


def _runs(result: Result) -> Iterable[str]:
    names = ["model", "preset", "precision", "dropout", "micro_batch", "checkpointing", "loss", "loss_scale"]
    names += ["overflow_steps", "tokens_per_second"]
    names += ["rows_per_second", "peak_memory_gb", "planned_memory_gb"]

    def cell(value: object) -> str:
        return f"{value:,.2f}" if isinstance(value, float) else "" if value is None else str(value)

    return _table([name.replace("_", " ") for name in names], [[cell(r.get(n)) for n in names] for r in result["runs"]])


def _profiles(result: Result) -> Iterable[str]:
    for one in result["profiles"]:
        kernels = [(row["name"], f"{1e3 * row['seconds']:,.2f}", row["calls"]) for row in one["kernels"]]
        yield (
            f"{one['model']}, {one['precision']}, dropout {one['dropout']}: three steps in {1e3 * one['seconds']:,.1f} "
            f"ms; the device was idle for {1e3 * one['idle_seconds']:,.1f} ms; the host waited {one['host_waits']} "
            f"times for it, {1e3 * one['host_wait_seconds']:,.1f} ms."
        )
        yield from ("", *_table(("kernel", "ms", "calls"), kernels), "")


def _speed(result: Result) -> Iterable[str]:
    def cells(row: Result) -> list[str]:
        share = row["packed_tflops"] / result["matrix_product_tflops"][row["precision"]] if "tflops" in row else None
        labels = [str(row[name]) for name in ("model", "length", "precision", "micro_batch", "system")]
        speed = [f"{row['rows_per_second']:,.1f}", f"{row['tflops']:,.1f}", f"{share:.2f}"] if share else ["", "", ""]
        return [*labels, f"{row['tokens_per_second']:,.0f}", *speed, f"{row['memory_bytes'] / 2**20:,.0f}"]

    head = ("model", "tokens a row", "precision", "micro-batch", "system", "tokens/s", "rows/s", "TFLOP/s", "share")
    yield from _table([*head, "MiB of a step"], map(cells, result["measurements"]))
    if not result["measurements"]:
        return
    products = ", ".join(f"{name} {speed:,.1f}" for name, speed in sorted(result["matrix_product_tflops"].items()))
    yield from (
        "",
        f"Share: of a large matrix product, sustained in the same run ({products} TFLOP/s), without attention between "
        "the sequences of a row. Forward, backward and LAMB. A copy of the GPU's memory reads and writes "
        f"{result['copy_gigabytes_per_second']:,.0f} GB/s.",
    )
    for name, state in result["states"].items():
        yield from ("", f"During the product of {name}: {', '.join(f'{key} {value}' for key, value in state.items())}.")
    yield ""
    for model, (share, over) in GOALS.items():
        rows = [row for row in result["measurements"] if (row["model"], row["length"]) == (model, 512)]
        mine = [
            row["packed_tflops"] / result["matrix_product_tflops"][row["precision"]] for row in rows if "tflops" in row
        ]
        fastest = {True: 0.0, False: 0.0}
        for row in rows:
            is_theirs = row["system"].startswith("transformers")
            fastest[is_theirs] = max(fastest[is_theirs], row["tokens_per_second"])
        if mine and fastest[True]:
            found = f"{max(mine):.2f} of the matrix product, {fastest[False] / fastest[True]:.2f} times `transformers`"
            yield f"- Goal for {model} at 512 tokens: {share} and {over}; found: {found}, by its fastest variant."


def _gains(result: Result) -> Iterable[str]:
    def cells(name: str, gains: dict[str, float]) -> list[str]:
        return [name, *(f"{gains[feature]:.2f}" if feature in gains else "" for feature in FEATURES)]

    yield from _table(("", *FEATURES), [cells(name, gains) for name, gains in result["gains"].items()])
    if not result["gains"]:
        return
    yield from (
        "",
        "Times as fast with the feature as without. The last columns: this model, eager, over `transformers` on one "
        "padded pair a row, or on full blocks without padding, and over both compiled.",
        "",
    )


def _several(result: Result) -> Iterable[str]:
    rows = result.get("scaling", {}).get("scaling", [])
    if rows:
        alone = rows[0]["tokens_per_second"]
        shares = [f"{row['tokens_per_second'] / row['gpus'] / alone:.2f}" for row in rows]
        cells = [(row["gpus"], f"{row['tokens_per_second']:,.0f}", share) for row, share in zip(rows, shares)]
        yield from _table(("GPUs", "tokens/s", "share of linear"), cells)
