"""The command ``haply completion``: a script for a shell, made from the parser itself."""

from __future__ import annotations

import argparse

from haply.cli.parser import make_parser

_BASH = """\
_haply() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" known=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands}" -- "$word"))
        return
    fi
    case "${{COMP_WORDS[1]}} $before" in
{choices}
    esac
    if [ -z "$known" ] && [[ "$word" == -* ]]; then
        case "${{COMP_WORDS[1]}}" in
{options}
        esac
    fi
    if [ -n "$known" ]; then
        COMPREPLY=($(compgen -W "$known" -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _haply haply
"""
_ZSH = "#compdef haply\nautoload -U +X bashcompinit && bashcompinit\n"


def completion(arguments: argparse.Namespace) -> int:
    """Print the script of a shell."""
    print(_fish() if arguments.shell == "fish" else (_ZSH if arguments.shell == "zsh" else "") + _bash(), end="")
    return 0


def _commands() -> dict[str, argparse.ArgumentParser]:
    for action in make_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise AssertionError("the parser has commands")


def _bash() -> str:
    commands = _commands()
    options, choices = [], []
    for name, command in commands.items():
        words = [option for action in command._actions for option in action.option_strings]
        options.append(f'            {name}) known="{" ".join(words)}" ;;')
        for action in command._actions:
            if action.choices:
                # positional arguments come right after the command
                before = "|".join(f'"{name} {option}"' for option in action.option_strings or [name])
                choices.append(f'        {before}) known="{" ".join(map(str, action.choices))}" ;;')
    return _BASH.format(commands=" ".join(commands), options="\n".join(options), choices="\n".join(choices))


def _fish() -> str:
    commands = _commands()
    lines = []
    for name, command in commands.items():
        lines.append(f"complete -c haply -n __fish_use_subcommand -f -a {name} -d {_quoted(_summary(command))}")
        for action in command._actions:
            here = f"complete -c haply -n '__fish_seen_subcommand_from {name}'"
            names = [f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in action.option_strings]
            given = f" -x -a {_quoted(' '.join(map(str, action.choices)))}" if action.choices else ""
            takes = " -r" if action.option_strings and action.nargs != 0 and not given else ""
            if names or given:
                said = command._get_formatter()._expand_help(action) if action.help else ""
                told = "" if action.help == argparse.SUPPRESS else f" -d {_quoted(said)}"
                lines.append(" ".join([here, *names]) + takes + given + told)
    return "\n".join(lines) + "\n"


def _summary(command: argparse.ArgumentParser) -> str:
    return str(command.description)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
