"""What a person sees in a browser: TensorBoard on the files of runs, and the page of `pipeline.report`."""

import signal
import subprocess
import sys

import pytest

from pipeline import report
from tests.pipeline.browser import Browser
from tests.pipeline.test_report import EVIL, runs  # noqa: F401  a fixture
from tests.pipeline.tracking.made_records import log_run

pytestmark = pytest.mark.slow

CELLS = "[...e.cells].map(cell => cell.innerText.trim())"
# Of the charts in one SVG: the lengths of their curves (a mark counts 100), and the texts that are cut off at its edge.
CHARTS_OF_REPORT = """[
  [...e.querySelectorAll("g[id^=axes_]")].map(axes => Math.max(
    ...[...axes.querySelectorAll(":scope > g[id^=line2d_] > path")].map(line => line.getTotalLength()),
    100 * axes.querySelectorAll(":scope > g[id^=line2d_] use").length)),
  [...e.querySelectorAll("text")].filter(text => {
    const [inner, outer] = [text.getBoundingClientRect(), e.getBoundingClientRect()];
    return inner.left < outer.left || inner.right > outer.right || inner.top < outer.top || inner.bottom > outer.bottom;
  }).map(text => text.textContent)
]"""
TABLE = "[e.rows.length, e.rows[0].cells.length, e.clientWidth, e.clientHeight]"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def tensorboard(browser, tmp_path_factory):
    """The address of a TensorBoard on the directory of a pre-training run and of a fine-tuning run."""
    logged = tmp_path_factory.mktemp("runs")
    log_run(logged / "base", 0, 60)
    log_run(logged / "rte" / "seed-3", 0, 20, {"task": "rte", "seed": 3})
    command = (sys.executable, "-m", "tensorboard.main", "--logdir", logged, "--host", "127.0.0.1", "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        said = next(line for line in server.stderr if "http://" in line)
        yield said[said.index("http://") :].split()[0]
        server.send_signal(signal.SIGTERM)


def test_tensorboard_shows_predictions_and_settings_as_tables(browser, tensorboard):
    browser.open(f"{tensorboard}#text")
    shown = browser.wait_for("eval/guesses", "✗**", "optimizer.params.lr")  # ** is a piece of this vocabulary
    rows = browser.of_all("tr", CELLS)
    assert ["the text, masked tokens in bold", "what the model reads, wrong tokens after ✗", "right"] in rows
    assert ["[CLS] cat s*at dog", "[CLS] cat s*at ✗**", "2/3"] in rows
    assert ["optimizer.params.lr", "0.001"] in rows
    assert "cat" in browser.of_all("td strong", "e.innerText")
    assert not [mark for mark in ("~~", "****", "|--", "<strong>", "`", "a team") if mark in shown]


def test_the_report_is_drawn_and_asks_for_nothing(browser, runs, tmp_path):  # noqa: F811
    out = tmp_path / "report.html"
    assert report.main(["--runs", str(runs), "--out", str(out)]) == 0
    browser.open(out.as_uri())
    assert (browser.requests, browser.complaints) == ([out.as_uri()], [])
    shown = browser.text().splitlines()
    assert EVIL in shown  # as text
    assert browser.of_all("script", "e.outerHTML") == []
    assert {"Held-out rows", "Speed and cost", "Settings that differ: pre-training", "MLM loss (nats)"} <= set(shown)
    pretraining, finetuning = browser.of_all("svg", CHARTS_OF_REPORT)
    assert len(pretraining[0]) == 8
    for lengths, outside in (pretraining, finetuning):
        assert min(lengths) > 10
        assert outside == []
    for rows, columns, width, height in browser.of_all("table", TABLE):
        assert rows > 1 < columns
        assert width > 100 < 10 * height
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")  # nothing is off the page
