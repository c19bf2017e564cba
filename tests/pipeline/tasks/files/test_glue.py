"""The official files of GLUE with their differences, and the errors for broken files."""

import pytest

from common.errors import UserError
from pipeline.tasks.files import reading
from pipeline.tasks.registry import TASKS
from tests.pipeline.tasks import task_files


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return path


def tabs(*columns):
    return "\t".join(columns)


MNLI_HEADER = tabs("index", "promptID", "pairID", "genre", "a", "b", "c", "d", "sentence1", "sentence2")

GLUE_FILES = {
    "cola": {
        "CoLA/train.tsv": [tabs("gj04", "1", "", 'He said "no".'), tabs("cj99", "0", "*", "As you eat the most.")],
        "CoLA/test.tsv": [tabs("index", "sentence"), tabs("7", "Bill whistled.")],
    },
    "sst2": {
        "SST-2/train.tsv": [tabs("sentence", "label"), tabs('a " b ', "1"), tabs("one line\u2028still", "0")],
        "SST-2/test.tsv": [tabs("index", "sentence"), tabs("3", "uneasy .")],
    },
    "mrpc": {
        "MRPC/train.tsv": [
            "\ufeff" + tabs("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
            tabs("1", "2", "3", 'He "said', "She said") + "\r",
            tabs("0", "2", "3", "x", "y"),
        ],
        "MRPC/test.tsv": [tabs("index", "#1 ID", "#2 ID", "#1 String", "#2 String"), tabs("9", "1", "2", "x", "y")],
    },
    "stsb": {
        "STS-B/train.tsv": [
            tabs("index", "genre", "filename", "year", "old", "s1", "s2", "sentence1", "sentence2", "score"),
            tabs("0", "g", "f", "y", "o", "n", "n", "A man", "A woman", "3.800"),
            tabs("1", "g", "f", "y", "o", "n", "n", "A", "B", "0"),
        ],
    },
    "qqp": {
        "QQP/train.tsv": [
            tabs("id", "qid1", "qid2", "question1", "question2", "is_duplicate"),
            tabs("5", "1", "2", "How?", "Why?", "0"),
            tabs("6", "a row that lost its columns"),
            tabs("7", "1", "2", "Who?", "What?", "1"),
        ],
        "QQP/test.tsv": [tabs("id", "question1", "question2"), tabs("12", "How?", "Why?")],
    },
    "mnli": {
        "MNLI/train.tsv": [
            tabs(MNLI_HEADER, "label1", "gold_label"),
            tabs("0", "1", "2", "g", "", "", "", "", "first", "second", "neutral", "neutral"),
            tabs("1", "1", "2", "g", "", "", "", "", "first", "second", "entailment", "contradiction"),
        ],
        "MNLI/dev_mismatched.tsv": [
            tabs(MNLI_HEADER, "label1", "label2", "gold_label"),
            tabs("0", "1", "2", "g", "", "", "", "", "x", "y", "neutral", "neutral", "entailment"),
        ],
        "MNLI/test_matched.tsv": [MNLI_HEADER, tabs("4", "1", "2", "g", "", "", "", "", "x", "y")],
        "diagnostic/diagnostic.tsv": [tabs("index", "sentence1", "sentence2"), tabs("2", "x", "y")],
    },
}  # fmt: skip

# (first, second, label) of the training examples, then (id, first) of the test ones
WANTED = {
    "cola": ([('He said "no".', None, 1), ("As you eat the most.", None, 0)], {"test": ("7", "Bill whistled.")}),
    "sst2": ([('a " b ', None, 1), ("one line\u2028still", None, 0)], {"test": ("3", "uneasy .")}),
    "mrpc": ([('He "said', "She said", 1), ("x", "y", 0)], {"test": ("9", "x")}),
    "stsb": ([("A man", "A woman", 3.8), ("A", "B", 0.0)], {}),
    "qqp": ([("How?", "Why?", 0), ("Who?", "What?", 1)], {"test": ("12", "How?")}),
    "mnli": (
        [("first", "second", 2), ("first", "second", 0)],
        {"dev_mismatched": ("0", "x"), "test_matched": ("4", "x"), "diagnostic": ("2", "x")},
    ),
}


@pytest.mark.parametrize("name", list(GLUE_FILES))
def test_glue(name, tmp_path):
    for file, lines in GLUE_FILES[name].items():
        write(tmp_path / file, *lines)
    training, others = WANTED[name]
    for place in (tmp_path, tmp_path / next(iter(GLUE_FILES[name])).split("/")[0]):
        splits = reading.read(TASKS[name], str(place))
        assert [(one.first, one.second, one.label) for one in splits["train"]] == training
        # Earlier runs know examples by these numbers, which rows that are left out have too.
        assert [one.id for one in splits["train"]] == (["0", "2"] if name == "qqp" else ["0", "1"])
        assert set(splits) == {"train", *others}
        for split, (identity, first) in others.items():
            assert (splits[split][0].id, splits[split][0].first) == (identity, first)


@pytest.mark.parametrize(
    ("name", "file", "lines", "message"),
    [
        ("sst2", "train.tsv", ["sentence\tlabel", "fine\t1", "odd\t2"], r"line 3: the label '2' is none of '0', '1';"),
        ("sst2", "train.tsv", ["sentence\tlabels", "fine\t1"], r"has no column 'label'; it"),
        ("rte", "dev.tsv", ["index\tsentence1\tsentence2\tlabel", "0\tx"], r"dev\.tsv, line 2: fewer than 4 columns"),
        ("rte", "train.tsv", ["index\tsentence1\tsentence2\tlabel", "0\tx\tbroken\ttail\tentailment"],
         r"train\.tsv, line 2: 5 cells instead of 4; remove the tab"),
        ("stsb", "train.tsv", ["sentence1\tsentence2\tscore", "x\ty\t5.1"], r"line 2: the score 5\.1 is no number"),
        ("rte", "test.tsv", ["index\tsentence1\tsentence2", "4\tx\ty", "4\tz\tw"], "split test has two examples '4'"),
        ("rte", "test.tsv", ["index\tsentence1\tsentence2", "x7\tx\ty"], "line 2: the index 'x7' is no whole number"),
    ],
)  # fmt: skip
def test_mistakes_in_glue(name, file, lines, message, tmp_path):
    write(tmp_path / file, *lines)
    with pytest.raises(UserError, match=message):
        reading.read(TASKS[name], str(tmp_path))


def test_the_last_line_is_an_example_with_any_line_end(tmp_path):
    for end in ("", "\n", "\r\n", "\n\n\n"):
        (tmp_path / "train.tsv").write_bytes(b"sentence\tlabel\nfine\t1\nbad\t0" + end.encode())
        assert [one.label for one in reading.read(TASKS["sst2"], str(tmp_path))["train"]] == [1, 0]


def test_a_test_file_with_labels_keeps_its_index(tmp_path):
    write(tmp_path / "test.tsv", "sentence1\tsentence2\tlabel\tindex", "x\ty\tentailment\t7")
    (example,) = reading.read(TASKS["rte"], str(tmp_path))["test"]
    assert (example.id, example.label) == ("7", 0)


def test_every_task_reads_its_files(tmp_path):
    task_files.write_all(tmp_path)
    for task in TASKS.values():
        place = {"squad1": "squad", "squad2": "squad", "race": "race"}.get(task.name, "glue")
        splits = reading.read(task, str(tmp_path / place))
        labels = {example.label for example in splits["train"]} if task.labels else set()
        assert {"train", *task.dev_splits} < set(splits)
        assert task.kind.predicts_numbers or labels == set(range(len(task.labels)))
