"""The arguments of train.py before they are parsed, and the YAML that they are made of."""

import re
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader, set_loader

from gnmt.errors import ConfigError

STRICT_YAML = "strict_yaml"


def register_strict_yaml() -> None:
    """Make `STRICT_YAML` known to jsonargparse: its own YAML, but a key that stands twice is refused."""
    set_loader(STRICT_YAML, _load_strictly, (yaml.YAMLError,))


def _load_strictly(text: str, path: str = "") -> Any:
    _refuse_repeated_keys(yaml.compose(text, Loader=yaml.SafeLoader), path)
    return get_loader("yaml")(text)


def _refuse_repeated_keys(node: yaml.Node | None, path: str) -> None:
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines:
                where = f"{path}, line {line}" if path else f"line {line}"
                raise ConfigError(f"{where}: {name} stands a second time (first in line {lines[name]}); keep one")
            lines[name] = line
            _refuse_repeated_keys(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_repeated_keys(value, path)


def explain_encoding(error: UnicodeDecodeError, arguments: list[str]) -> str:
    """Say which file among the arguments is no UTF-8 text, and where."""
    named = (Path(argument.rpartition("=")[2]) for argument in arguments)
    found = [str(path) for path in named if path.is_file() and path.read_bytes() == error.object]
    line = error.object.count(b"\n", 0, error.start) + 1
    return f"{found[0] if found else 'a configuration file'}, line {line}: no UTF-8 text; save it as UTF-8"


def split_off_configs(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Take the --config options out: they must come first, because a file overrides what stands before it.

    Returns:
        the --config options, and the other arguments.
    """
    configs, options = [], []
    rest = iter(arguments)
    for argument in rest:
        if argument in ("--config", "-c"):
            configs += [argument, *(value for value in [next(rest, None)] if value is not None)]
        elif argument.startswith(("--config=", "-c")):
            configs.append(argument)
        else:
            options.append(argument)
    return configs, options


def config_files(arguments: list[str]) -> list[str]:
    """The files that the arguments name with --config, in order."""
    configs, _ = split_off_configs(arguments)
    return [re.sub("^(--config=|-c)", "", argument) for argument in configs if argument not in ("--config", "-c")]
