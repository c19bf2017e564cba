"""The page that compares runs: its figures, its curves, and that nothing from outside becomes markup."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.errors import UserError
from pipeline import report
from pipeline.analysis import html_report
from pipeline.analysis.compared_runs import ComparedRun, mean_over_time, sustained_speed
from pipeline.analysis.html_report import MAX_POINTS, Chart, Curve, draw_charts, thinned
from tests.pipeline.analysis import made_runs
from tests.pipeline.tracking.made_records import SETTINGS, log_run

MODEL = {
    "vocab_size": 50, "embedding_size": 4, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 16,
}  # fmt: skip
PRETRAIN = {
    **SETTINGS,
    "device": "NVIDIA H100",
    "model": MODEL,
    "train_batch_size": 8,
    "data": "digest",
    "world_size": 4,
}
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td"),
    *("svg", "defs", "g", "path", "text", "use", "clippath", "rect"),
}
EVIL = "<script>alert('x')</script>\x1b[2J\u202e"
SHOWN = "<script>alert('x')</script>\\x1b[2J\\u202e"


class Page(HTMLParser):
    """The tags of a page, checked to be closed in order, and its tables."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.rows, self.attributes, self.targets = set(), [], [], set(), []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self._add(attributes)
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)
        self._add(attributes)

    def _add(self, attributes):
        self.attributes |= {name for name, _ in attributes}
        self.targets += [value for name, value in attributes if name == "xlink:href"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data

    def row(self, *beginning):
        """The row that begins so."""
        return next(row for row in self.rows if row[: len(beginning)] == list(beginning))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    log_run(root / "base", 0, 60, PRETRAIN)
    (root / "base" / "done").write_text("60\n")
    other = {
        **PRETRAIN,
        "command": ["--steps", "200"],
        "implementation": {"attention": EVIL},
        "steps": 200,
        "data": "ab" * 32,
    }
    log_run(root / "other", 0, 40, other, finished=False)
    tuned = root / f"tuned {EVIL.replace('/', '')}"
    log_run(tuned, 0, 20, {"task": "rte", "model": MODEL, "world_size": 1, "seed": 7})
    results = {"task": "rte", "init": str(root / "base"), "metrics": {"dev": {"accuracy": 0.625}}}
    (tuned / "results.json").write_text(json.dumps(results))
    return root


@pytest.fixture(scope="module")
def page(runs):
    out = runs / "report.html"
    assert report.main(["--runs", str(runs), "--out", str(out), "--price-per-gpu-hour", "30"]) == 0
    return Page(out.read_text(encoding="utf-8"))


def test_each_run_has_its_figures(page):
    assert page.row("base", "pre-training, sop")[2:5] == ["finished", "60 of 100", "1,200"]
    assert page.row("base", "pre-training, sop")[-2:] == ["4", "NVIDIA H100"]
    assert page.row("other", "pre-training, sop")[2:4] == ["not finished", "40 of 200"]
    assert page.row("base", "60")[2:] == ["6.5000", "8.3 % above", "10.0 % (8.0 to 12.0)", "60.0 % (50.0 to 70.0)"]
    # 60 s on 4 ranks are 1/15 of an hour, which costs 2.
    assert page.row("base", "50") == ["base", "50", "40.0 %", "1.0 %", "3.50", "1 min 0 s", "0.07", "2.00"]


def test_only_settings_that_differ_are_listed(page):
    names = [row[0] for row in page.rows]
    assert page.row("implementation.attention") == ["implementation.attention", "-", SHOWN]
    assert page.row("steps", "100") == ["steps", "100", "200"]
    assert page.row("data") == ["data", "digest", "abababab"], "of a digest"
    # Kinds are not compared with each other: the fine-tuning run has another seed, and no optimizer block.
    assert not {"model.hidden_size", "optimizer.params.lr", "task", "command"} & set(names)


def test_fine_tuning_results_are_there(page):
    assert next(row for row in page.rows if "rte" in row)[1:] == ["rte", "dev", "1", "accuracy 0.625"]


def test_nothing_from_outside_becomes_markup(runs, page):
    assert page.tags <= TAGS
    assert not {name for name in page.attributes if name.startswith("on") or name in ("src", "href")}
    assert all(target.startswith("#") for target in page.targets)
    assert not re.findall(
        "<script>|[\x00-\x09\x0b-\x1f\u202a-\u202e]", (runs / "report.html").read_text(encoding="utf-8")
    )
    assert not re.findall(r"https?://|url\([^#]|@import", (runs / "report.html").read_text(encoding="utf-8"))
    assert "svg" in page.tags


def test_a_page_is_replaced_and_another_file_is_not(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(html_report, "draw_charts", lambda *_: "")
    out = tmp_path / "deep" / "report.html"
    for _ in range(2):
        assert report.main(["--runs", str(runs / "base"), "--out", str(out)]) == 0
    edited = out.read_text(encoding="utf-8").replace("</body>", "<p>Our conclusion</p></body>")
    for mine in (edited, "mine"):
        out.write_text(mine, encoding="utf-8")
        assert report.main(["--runs", str(runs / "base"), "--out", str(out)]) == 2
        assert out.read_text(encoding="utf-8") == mine
    printed, errors = capsys.readouterr()
    assert "report.html compares 1 run: base\n" in printed
    assert errors.count("did not write them, or they have changed since: report.html; move them away") == 2
    assert report.main(["--runs", str(runs / "base"), "--out", str(tmp_path)]) == 2
    assert "is a directory; name a file in it" in capsys.readouterr().err


def test_directories_without_runs_are_refused(tmp_path, capsys):
    made_runs.finetuning(tmp_path / "results", "rte", "", {"dev": {"accuracy": 0.5}})
    (tmp_path / "settings.json").write_text('{"editor.fontSize": 12}')  # of another program
    for runs in (tmp_path, tmp_path / "nothing"):
        assert report.main(["--runs", str(runs), "--out", str(tmp_path / "report.html")]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert errors[0].startswith("error: --runs: no run in ")
    assert errors[1].endswith("is no directory; name --output directories of runs")


def test_the_speed_is_that_of_the_run_and_not_of_the_last_interval():
    slow = {"tokens": 1000, "tokens_per_second": 10.0, "peak_share": 0.01}
    fast = {"tokens": 2000, "tokens_per_second": 1000.0, "peak_share": 0.5}
    assert sustained_speed([slow, fast]) == pytest.approx(2000 / (100 + 1))
    assert mean_over_time([slow, fast], "peak_share") == pytest.approx((100 * 0.01 + 1 * 0.5) / (100 + 1))
    assert mean_over_time([slow, fast], "data_wait_share") is None
    assert sustained_speed([{"tokens": 5, "tokens_per_second": None}]) is None
    assert sustained_speed([]) is None


def test_an_evaluation_between_two_records_has_its_place():
    training = [{"step": 10, "tokens": 100, "seconds": 3600.0}, {"step": 20, "tokens": 300, "seconds": 7200.0}]
    evaluations = [{"step": step, "mlm_loss": float(step)} for step in (5, 15, 20, 25)]
    run = ComparedRun("a", Path("a"), {}, training, evaluations)
    assert run.points("eval", "mlm_loss", "tokens") == [(50.0, 5.0), (200.0, 15.0), (300.0, 20.0)]
    assert run.points("eval", "mlm_loss", "hours") == [(0.5, 5.0), (1.5, 15.0), (2.0, 20.0)]
    assert [step for step, _ in run.points("eval", "mlm_loss")] == [5.0, 15.0, 20.0, 25.0]


def drawn(*points, names=("a",), **more):
    return draw_charts(names, [Chart("t", "x", [Curve(0, points, marked=True, **more)])])


def test_only_what_says_something_of_quality_is_charted():
    names = ("exact", "missing", "HasAns_f1", "HasAns_total", "best_f1", "best_f1_thresh", "total", "step")
    run = SimpleNamespace(evaluations=[dict.fromkeys(names, 1.0)], points=lambda *_: [])
    charts = [chart.title for chart in html_report._finetuning_charts([run])]
    assert charts == ["training loss", "dev: exact", "dev: HasAns_f1", "dev: best_f1"]


def test_a_chart_has_its_names_and_round_ticks():
    texts = re.findall(
        r"<text[^>]*>([^<]*)</text>", drawn((0, 5.49), (2e6, 7.7), band=[(0, 5.4, 5.5), (2e6, 7.6, 7.8)])
    )
    assert {"a", "t", "x", "0", "1M", "2M", "6.0", "7.0"} <= set(texts)
    assert draw_charts(["a"], []) == ""


def test_more_than_ten_runs_look_different():
    curves = [Curve(place, [(0.0, 0.0), (1.0, float(place))]) for place in range(40)]
    svg = draw_charts([f"run {place}" for place in range(40)], [Chart("t", "x", curves)])
    legend = svg[svg.index('id="legend_1"') :]
    styles = re.findall(r'<path d="[^"]*" style="([^"]*)"/>', legend)
    assert len({style for style in styles if "stroke-width: 1.5" in style}) == 40


@pytest.mark.parametrize("words", [["--out", "report.html"], ["--runs", "runs"], ["--runs", "--out", "report.html"]])
def test_runs_and_out_must_be_given(words):
    with pytest.raises(UserError, match=r"--runs|--out"):
        report.parser().parse_all(words)


def test_a_long_curve_is_drawn_as_means():
    assert thinned([(float(x), 2.0 * x) for x in range(1000)], 500)[:2] == [(0.5, 1.0), (2.5, 5.0)]
    assert len(thinned([(0.0, 0.0)] * (2 * MAX_POINTS + 1))) <= MAX_POINTS


@pytest.mark.parametrize(
    "values", [(1e308, -1e308), (1e308, 1e308), (5e-324, 0.0), (0.0, 0.0), (2.0**60, 2.0**60), (10**400, -(10**400))]
)
def test_numbers_that_no_run_has_do_not_end_the_report(values):
    for at, value in ((values, (0.0, 1.0)), ((0.0, 1.0), values)):
        training = [{"step": 1, "tokens": x, "grad_norm": y} for x, y in zip(at, value)]
        run = ComparedRun("a", Path("a"), {"objective": "sop"}, training, [])
        points = run.points("train", "grad_norm", "tokens")
        assert len(points) == (2 if max(map(abs, values)) < 1e30 else 0)
        assert drawn(*points).startswith("<svg")
