"""`python -m pipeline COMMAND`."""

import runpy
import sys

from pipeline import __main__ as commands


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["albert", *words])
    return commands.main()


def test_a_command_gets_the_words_behind_its_name(monkeypatch):
    calls = []
    monkeypatch.setattr(runpy, "run_module", lambda *names, **how: calls.append((*names, how, sys.argv)))
    assert run(monkeypatch, "plan", "--gpu", "h100") == 0
    assert run(monkeypatch, "data", "shards", "--out", "s") == 0
    as_main = {"run_name": "__main__", "alter_sys": True}
    assert calls == [
        ("pipeline.plan", as_main, ["albert", "--gpu", "h100"]),
        ("data_prep.__main__", as_main, ["albert", "shards", "--out", "s"]),
    ]


def test_an_unknown_command_is_one_line(monkeypatch, capsys):
    assert run(monkeypatch, "pretrian") == 2
    assert capsys.readouterr().err == "error: unknown command pretrian; did you mean pretrain?\n"
