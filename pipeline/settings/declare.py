"""Flags declared as fields of a dataclass: the command line and YAML files follow from them.

    @dataclass(frozen=True, kw_only=True)
    class ToolFlags:
        steps: int = flag("optimizer steps", 100, positive, group="training")

The annotation says what the flag takes: `bool` an optional true or false, `Literal` one of its choices, `tuple` one or
more words, all others one word. A field without a default is required. argparse reads the words. YAML is made into
words first, so that a value has the same checks and messages wherever it stands.
"""

import argparse
import dataclasses
import inspect
import os
import textwrap
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from common.command_line import PATHS, Parser, truth
from common.errors import UserError, one_line
from common.text import did_you_mean

F = TypeVar("F")
CONFIG = "--config"
MAX_YAML_BYTES = 1 << 20


@dataclass(frozen=True)
class Flag:
    """A flag of a dataclass."""

    help: str
    default: Any = dataclasses.MISSING  # MISSING if the flag is required
    # makes the value of a word, and refuses it with ValueError or `argparse.ArgumentTypeError`
    read: Callable[[str], Any] | None = None
    name: str = ""
    # what stands for the value in the help. That of a path fits `common.command_line.PATHS`.
    metavar: str | None = None
    choices: Sequence[str] = ()
    alone: str | None = None  # the word that the flag means without one
    extend: bool = False  # whether words given later are added to those before, instead of replacing them
    group: str = ""  # begins a group of flags with this title
    fixed: bool = False  # whether a run that is resumed must have the same value
    field: str = ""
    many: bool = False  # whether it takes one or more words

    @property
    def key(self) -> str:
        """Its key in a YAML file."""
        return self.name.removeprefix("--")

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is dataclasses.MISSING

    @property
    def full_help(self) -> str:
        """The help with the default."""
        if self.required:
            return f"{self.help} (required)"
        if "default" in self.help or self.default is False or self.default in (None, ()):
            return self.help
        default = f"{self.default:g}" if isinstance(self.default, float) else self.default
        default = " ".join(map(str, default)) if isinstance(default, tuple) else default
        return f"{self.help} (default: {default})"

    def add_to(self, group: Any) -> None:
        """Adds it to a parser or a group of one."""
        options: dict[str, Any] = {"nargs": "+"} if self.many else {}
        if self.alone is not None:
            options = {"nargs": "?", "const": True if self.alone == "true" else self.alone}
        if self.extend:
            options["action"] = "extend"
        group.add_argument(
            self.name,
            dest=self.field,
            type=self.read,
            choices=self.choices or None,
            metavar=self.metavar,
            required=self.required,
            default=None if self.required else list(self.default) if self.many else self.default,
            help=self.full_help.replace("%", "%%"),
            **options,
        )


def flag(
    help: str, default: Any = dataclasses.MISSING, read: Callable[[str], Any] | None = None, **options: Any
) -> Any:
    """Declares a field as a flag. `options` are other attributes of `Flag`."""
    return dataclasses.field(default=default, metadata={"flag": Flag(help, default, read, **options)})


def flags_of(command: type[Any]) -> tuple[Flag, ...]:
    """The flags of a dataclass, its own before those of its bases."""
    hints = get_type_hints(command)
    declared = {one.name: one for one in dataclasses.fields(command) if "flag" in one.metadata}
    flags: dict[str, Flag] = {}
    for base in command.__mro__:
        group = ""
        for name in inspect.get_annotations(base):
            if name in declared and name not in flags:
                one = _completed(declared[name].metadata["flag"], name, hints[name])
                group = one.group or group
                flags[name] = dataclasses.replace(one, group=group)
    return tuple(flags.values())


def _completed(one: Flag, field: str, annotation: Any) -> Flag:
    """The flag with what follows from the name and the annotation of its field."""
    if get_origin(annotation) in (types.UnionType, typing.Union):  # X | None
        (annotation,) = (kind for kind in get_args(annotation) if kind is not types.NoneType)
    many = get_origin(annotation) is tuple
    kind = get_args(annotation)[0] if many else annotation
    choices, alone, metavar = one.choices, one.alone, one.metavar
    if get_origin(kind) is Literal:
        kind, choices = str, get_args(kind)
    if kind is bool:
        kind, alone, metavar = truth, "true", "true|false"
    return dataclasses.replace(
        one,
        field=field,
        name=one.name or "--" + field.replace("_", "-"),
        read=one.read or kind,
        metavar=metavar or (None if choices else "N"),
        choices=tuple(choices),
        alone=alone,
        many=many,
    )


def add_flags(parser: argparse.ArgumentParser, command: type[Any]) -> None:
    """Adds the flags of a dataclass to `parser`, by group."""
    groups: dict[str, Any] = {}
    for one in flags_of(command):
        groups[one.group] = groups.get(one.group) or parser.add_argument_group(one.group)
        one.add_to(groups[one.group])


def make_parser(command: type[Any], prog: str, description: str) -> Parser:
    """The command line of a dataclass that a launcher starts."""
    required = " ".join(f"{one.name} {one.metavar}" for one in flags_of(command) if one.required)
    usage = textwrap.fill(f"{prog} {required} [FLAG ...]", 72, subsequent_indent=" " * 11, break_on_hyphens=False)
    parser = Parser(prog=prog, description=description, usage=usage)
    parser.add_argument(CONFIG, type=Path, metavar="FILE", help="YAML with any of the flags; the command line wins")
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # the launcher adds it
    add_flags(parser, command)
    return parser


def parse(command: type[F], parser: Parser, words: Sequence[str]) -> F:
    """The flags in `words` and in the file of --config. Raises UserError for a mistake."""
    return from_namespace(command, parser.parse_all(with_file(command, words)))


def from_namespace(command: type[F], args: argparse.Namespace) -> F:
    """The flags of `command` that a parser has read."""
    values = {one.field: getattr(args, one.field) for one in flags_of(command)}
    return command(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def value_in(words: Sequence[str], name: str) -> str | None:
    """The word of the flag `name` in a command line; None if it is not there."""
    for word, following in zip(words, [*words[1:], ""]):
        flag_name, equals, value = word.partition("=")
        if flag_name == name:
            return value if equals else following
    return None


def with_file(command: type[Any], words: Sequence[str], path: Path | None = None) -> list[str]:
    """`words` behind those of the file `path`, without the flags that both give.

    The path is None for the one that --config names; another one has been recorded by a run, maybe of an earlier
    version. Raises UserError: the file cannot be read, or has an unknown key.
    """
    is_record = path is not None
    if path is None:
        named = value_in(words, CONFIG)
        if named is None:
            return list(words)
        if sum(word.partition("=")[0] == CONFIG for word in words) > 1:
            raise UserError(f"{CONFIG} is given twice; put all flags into one file")
        path = Path(named)
    given = {word.partition("=")[0] for word in words}
    from_file = _read_yaml(command, path, is_record)
    return [*(word for name, its in from_file.items() if name not in given for word in its), *words]


def _read_yaml(command: type[Any], path: Path, is_record: bool) -> dict[str, list[str]]:
    """The words of each flag in a YAML file, its name first, as they are written: YAML has no `on`, 1e-5 or dates.

    A null that is not quoted is no value. A path may begin with ~. A flag that is gone is left out if it has no value,
    or if a run has recorded it.
    """
    import yaml

    from common.files.json_files import read_text

    try:
        root = yaml.compose(read_text(path, "name a file of flags", MAX_YAML_BYTES), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{CONFIG} {path} is not YAML: {one_line(error)}; correct it") from None
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise UserError(f"{CONFIG} {path}: it must have a line of the form `flag: value` for each flag")
    declared = {each.key.replace("-", "_"): each for each in flags_of(command)}
    words: dict[str, list[str]] = {}
    for key_node, node in root.value if root is not None else ():
        key = str(key_node.value)
        one = declared.get(key.replace("-", "_"))
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        is_null = isinstance(node, yaml.ScalarNode) and node.style is None and node.value in ("", "~", "null")
        has_value = nodes and not is_null
        is_gone = key in getattr(command, "removed", ())
        if is_gone and (is_record or not has_value):
            continue
        if one is None:
            near = did_you_mean(key, declared, "the keys are the flags without the dashes")
            hint = "this flag is gone; drop it" if is_gone else near
            raise UserError(f"{CONFIG} {path}: unknown key {key[:40]!r}; {hint}")
        if one.name in words:
            raise UserError(f"{CONFIG} {path}: {key} is given twice; keep one")
        if not all(isinstance(each, yaml.ScalarNode) for each in nodes):
            raise UserError(f"{CONFIG} {path}: {key} must be one value, or a list of values")
        words[one.name] = _with_name(one, [each.value for each in nodes], path) if has_value else []
    return {name: its for name, its in words.items() if its}


def _with_name(one: Flag, values: Sequence[str], path: Path) -> list[str]:
    """The words that give a flag the values of a file. Raises UserError for a value that would be another flag."""
    if PATHS.match(one.metavar or ""):
        values = [os.path.expanduser(value) for value in values]
    if len(values) == 1 and not one.many:
        return [f"{one.name}={values[0]}"]
    if dashed := next((value for value in values if value.startswith("-")), ""):
        raise UserError(f"{CONFIG} {path}: {one.key}: {dashed[:40]!r} begins with a dash, as a flag does; correct it")
    return [one.name, *values]


def _words_of(one: Flag, value: Any) -> list[str]:
    """The words of a value on a command line. Paths of what exists, or will exist, are absolute."""
    words = [str(each) for each in (value if one.many else [value])]
    if one.name == "--output":  # which need not exist when the flags are read
        return [str(Path(word).absolute()) for word in words]
    return [_absolute(word) for word in words] if PATHS.match(one.metavar or "") else words


def split_weight(word: str) -> tuple[Path, str]:
    """The path in DIR[:WEIGHT], and the weight, "" without one. A path that exists may end in a colon and a number."""
    path, colon, weight = word.rpartition(":")
    return (Path(path), weight) if colon and not Path(word).exists() else (Path(word), "")


def _absolute(word: str) -> str:
    """The word with an absolute path, if it is one of something that exists, also before a weight."""
    path, weight = split_weight(word)
    return f"{path.absolute()}{weight and ':' + weight}" if path.exists() else word


def to_yaml(flags: Any) -> str:
    """All flags with their values as a file for --config, which starts the same run again from any directory."""
    import yaml

    content: dict[str, Any] = {}
    for one in flags_of(type(flags)):
        value = getattr(flags, one.field)
        if not isinstance(value, bool | int | float | None):
            value = _words_of(one, value) if one.many else _words_of(one, value)[0]
        content[one.key] = value
    return str(yaml.safe_dump(content, sort_keys=False, width=120))
