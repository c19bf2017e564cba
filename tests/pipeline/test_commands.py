"""`python -m pipeline COMMAND`, and the completion of its words in bash."""

import runpy
import subprocess
import sys

import pytest

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


def test_bash_completes_commands_jobs_and_flags(tmp_path, monkeypatch, capsys):
    assert run(monkeypatch, "completion", "bash") == 0
    script = tmp_path / "completion.bash"
    script.write_text(capsys.readouterr().out, encoding="utf-8")

    def complete(*words):
        line = " ".join(f"'{word}'" for word in ("albert", *words))
        function = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; _shtab_albert albert '{words[-1]}' x"
        shell = f'source {script}; {function}; echo "${{COMPREPLY[@]}}"'
        result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=True)
        return result.stdout.split()

    assert complete("pre") == ["predict", "preflight", "pretrain"]
    assert complete("data", "sh") == ["shards", "show"]
    assert complete("pretrain", "--eval-d") == ["--eval-data"]
    (tmp_path / "shards").mkdir()
    monkeypatch.chdir(tmp_path)
    assert complete("pretrain", "--data", "sha") == ["shards"]


def test_completion_without_its_package_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert run(monkeypatch, "completion", "bash") == 2
    assert capsys.readouterr().err == "error: completion needs the package shtab; pip install shtab\n"


@pytest.mark.parametrize("words", [("--help",), ()])
def test_the_list_has_every_command(monkeypatch, capsys, words):
    with pytest.raises(SystemExit):
        run(monkeypatch, *words)
    listed = capsys.readouterr().out
    assert all(f"\n    {name} " in listed for name in commands.commands())
