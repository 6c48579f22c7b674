"""Completion for shells: scripts that are made of the parser itself, so that they know every command, flag and choice. Pure."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tidewheel.surfaces.arguments import commands_of

NOTHING, WORDS, FILES, OTHER = "nothing", "words", "files", "other"
"""The value that a flag takes: none, one of some words, a file or folder, something that cannot be completed."""

_FILES = ("FILE", "DIR", "PATH", "ROOT", "SOURCE")
"""Metavars of values that are files, or may be."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A flag, by all its names, or with none of them a positional argument."""

    names: tuple[str, ...]
    takes: str
    words: tuple[str, ...]
    help: str
    metavar: str
    repeats: bool
    optional: bool
    """Whether the flag may stand without its value."""


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    """Empty: the program itself."""
    help: str
    arguments: tuple[Argument, ...]

    @property
    def flags(self) -> list[Argument]:
        return [one for one in self.arguments if one.names]

    @property
    def positionals(self) -> list[Argument]:
        return [one for one in self.arguments if not one.names]


def tree_of(parser: argparse.ArgumentParser) -> list[Command]:
    """The program, then its commands."""
    helps: dict[str, str] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {one.dest: one.help or "" for one in action._choices_actions}
    found = [Command("", parser.description or "", _arguments(parser))]
    return found + [Command(name, helps.get(name, ""), _arguments(one)) for name, one in commands_of(parser).items()]


def _arguments(parser: argparse.ArgumentParser) -> tuple[Argument, ...]:
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        metavar = action.metavar[0] if isinstance(action.metavar, tuple) else action.metavar or action.dest
        takes = OTHER
        if action.nargs == 0:
            takes = NOTHING
        elif action.choices is not None:
            takes = WORDS
        elif action.type is Path or metavar in _FILES:
            takes = FILES
        words = tuple(str(choice) for choice in action.choices or ())
        told = re.sub(r"%\(?.*?\)?s", "", action.help or "").replace("%%", "%").replace("\n", " ")
        repeats = isinstance(action, argparse._AppendAction)
        found.append(Argument(tuple(action.option_strings), takes, words, told, metavar, repeats, action.nargs == "?"))
    return tuple(found)


# ---- bash ---------------------------------------------------------------------------------------------------


def bash(program: str, commands: list[Command]) -> str:
    """For bash 3.2 and newer. Where there is nothing to say, bash completes file names itself."""
    names = [one.name for one in commands if one.name]
    lines = [
        f'# Completion of {program} for bash. In ~/.bashrc: eval "$({program} completion bash)"',
        f"_{program}() {{",
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= i",
        "    if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi  # --flag=value: three words",
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        f"        case ${{COMP_WORDS[i]}} in {'|'.join(names)}) command=${{COMP_WORDS[i]}}; break ;; esac",
        "    done",
        "    COMPREPLY=()",
        "    [[ $cur == -* ]] && prev=  # a flag, and no value of the one before",
        '    case "$command $prev" in',
    ]
    for command in commands:
        for flag in command.flags:
            if flag.takes != NOTHING:
                cases = "|".join(f'"{command.name} {name}"' for name in flag.names)
                done = f'COMPREPLY=($(compgen -W "{" ".join(flag.words)}" -- "$cur")); ' if flag.takes == WORDS else ""
                lines.append(f"        {cases}) {done}return ;;")
    lines += ["    esac", "    case $command in"]
    for command in commands:
        first = [word for one in command.positionals for word in one.words] if command.name else names
        flags = [name for flag in command.flags for name in flag.names]
        lines.append(
            f'        "{command.name}") if [[ $cur == -* ]]; then words="{" ".join(flags)}"; else words="{" ".join(first)}"; fi ;;'
        )
    lines += [
        "    esac",
        '    COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        "}",
        f"complete -o bashdefault -o default -F _{program} {program}",
    ]
    return "\n".join(lines) + "\n"


# ---- zsh ----------------------------------------------------------------------------------------------------


def zsh(program: str, commands: list[Command]) -> str:
    lines = [
        f"#compdef {program}",
        f'# Completion of {program} for zsh. Once: {program} completion zsh > "${{fpath[1]}}/_{program}"',
        f"_{program}() {{",
        "  local context state state_descr line",
        "  typeset -A opt_args",
        "  _arguments -C \\",
        *(f"    {spec} \\" for flag in commands[0].flags for spec in _zsh_specs(flag)),
        "    '1:command:->command' \\",
        "    '*::argument:->argument'",
        "  case $state in",
        "    command)",
        "      local -a commands",
        "      commands=(",
        *("        " + _single(f"{one.name}:{one.help}") for one in commands[1:]),
        "      )",
        "      _describe command commands ;;",
        "    argument)",
        "      case $words[1] in",
    ]
    for command in commands[1:]:
        specs = [spec for flag in command.flags for spec in _zsh_specs(flag)]
        specs += [_single(f":{_plain(one.metavar)}:{_zsh_values(one)}") for one in command.positionals]
        lines.append(f"        {command.name})")
        lines.append("          _arguments \\\n" + " \\\n".join(f"            {spec}" for spec in specs) + " ;;")
    lines += [
        "      esac ;;",
        "  esac",
        "}",
        f'if [ "$funcstack[1]" = "_{program}" ]; then _{program} "$@"; else compdef _{program} {program}; fi',
    ]
    return "\n".join(lines) + "\n"


def _zsh_specs(flag: Argument) -> Iterable[str]:
    for name in flag.names:
        told = re.sub(r"([\[\]:\\])", r"\\\1", flag.help)
        value = "" if flag.takes == NOTHING else f"{':' * flag.optional}:{_plain(flag.metavar)}:{_zsh_values(flag)}"
        yield _single(f"{'*' if flag.repeats else ''}{name}[{told}]{value}")


def _zsh_values(argument: Argument) -> str:
    return {WORDS: f"({' '.join(argument.words)})", FILES: "_files"}.get(argument.takes, "")


def _plain(text: str) -> str:
    return re.sub(r"[^\w ]", " ", text).strip() or "value"


# ---- fish ---------------------------------------------------------------------------------------------------


def fish(program: str, commands: list[Command]) -> str:
    lines = [
        f"# Completion of {program} for fish. Once: {program} completion fish > ~/.config/fish/completions/{program}.fish",
        f"complete -c {program} -f",
    ]
    for command in commands[1:]:
        lines.append(f"complete -c {program} -n __fish_use_subcommand -a {command.name} -d {_single(command.help)}")
    for command in commands:
        where = f"'__fish_seen_subcommand_from {command.name}'" if command.name else "__fish_use_subcommand"
        for flag in command.flags:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names)
            lines.append(f"complete -c {program} -n {where} {names}{_fish_values(flag)} -d {_single(flag.help)}")
        for one in command.positionals:
            if one.takes in (WORDS, FILES):
                lines.append(f"complete -c {program} -n {where}{_fish_values(one).replace(' -x', '').replace(' -r', '')}")
    return "\n".join(lines) + "\n"


def _fish_values(argument: Argument) -> str:
    return {NOTHING: "", WORDS: f" -x -a '{' '.join(argument.words)}'", FILES: " -r -F"}.get(argument.takes, " -x")


def _single(text: str) -> str:
    """In single quotes; those in the text become typographic, since shells disagree on how to write them."""
    return "'" + text.replace("'", "’") + "'"


SCRIPTS: dict[str, Callable[[str, list[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
