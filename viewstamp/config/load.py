"""Reads settings: a TOML file, then the environment, then flags, each overriding the one before.

This module owns the file's syntax and the messages about it; ``model.py`` has the allowed values.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from viewstamp.config.model import (
    ArchiveSection,
    ClusterSection,
    Key,
    LimitsSection,
    LoggingSection,
    NodeSection,
    NodeSettings,
    SnapshotsSection,
    TimeoutsSection,
    TlsSection,
    WalSection,
    actor_key,
    keys_of,
)
from viewstamp.errors import ConfigError
from viewstamp.host.object_url import is_object_url
from viewstamp.quantities import DURATION_UNITS, SIZE_UNITS

__all__ = ["LoadedSettings", "load_settings", "settle"]

_ACTORS: Final = "actors"
_ENVIRONMENT_PREFIX: Final = "VIEWSTAMP_"
_KINDS: Final = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    dict: "a table of strings",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings and the origin of each.

    ``origins`` maps (section, key) to "default", "file PATH", "environment VARIABLE", "flag --set" or
    "from SECTION.KEY". ``directory`` is the file's, absolute.
    """

    settings: NodeSettings
    origins: Mapping[tuple[str, str], str]
    directory: str

    def rows(self) -> list[tuple[str, Any, str]]:
        """Return ("section.key", value, origin) of every setting, in the order of the sections."""
        rows = [
            (
                f"{key.section}.{key.name}",
                getattr(getattr(self.settings, key.section), key.name),
                self.origins[key.section, key.name],
            )
            for key in keys_of(NodeSettings)
        ]
        actors = self.settings.actors.items()
        return [*rows, *((f"actors.{name}", target, self.origins["actors", name]) for name, target in actors)]


def load_settings(
    path: str | os.PathLike[str],
    *,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> LoadedSettings:
    """Read the settings of one node and check them. Blocks on one small file.

    ``environment`` holds ``VIEWSTAMP_SECTION__KEY`` variables, by default the process's own; ``overrides`` maps
    ``section.key`` to text, from flags. A relative path is relative to the file's directory if the file sets it, else
    to the current directory.

    Raises:
      ConfigError: a setting is wrong; the message gives file (or variable, or flag), key, value and allowed values.
    """
    file = os.fspath(path)
    return settle(
        _read_file(file),
        file,
        environment=os.environ if environment is None else environment,
        overrides=overrides or {},
    )


def settle(
    document: Mapping[str, Any], file: str, *, environment: Mapping[str, str], overrides: Mapping[str, str]
) -> LoadedSettings:
    """Build settings from a TOML document and check them. ``file`` is its path, which need not exist yet.

    Raises:
      ConfigError: as :func:`load_settings`.
    """
    keys = {(key.section, key.name): key for key in keys_of(NodeSettings)}
    values: dict[tuple[str, str], Any] = {at: key.default for at, key in keys.items()}
    origins = dict.fromkeys(keys, "default")

    for key, value in _in_document(document, file):
        values[key.section, key.name] = _checked(key, value, file)
        origins[key.section, key.name] = f"file {file}"
    for key, variable, text in _in_environment(environment):
        values[key.section, key.name] = _parsed(key, text, variable)
        origins[key.section, key.name] = f"environment {variable}"
    for dotted, text in overrides.items():
        key = _find(*_split(dotted), f"--set {dotted}={text}")
        values[key.section, key.name] = _parsed(key, text, f"--set {dotted}")
        origins[key.section, key.name] = "flag --set"

    for at, key in keys.items():
        if key.required and origins[at] == "default":
            raise ConfigError(
                f"{file}: {key} is missing; allowed: {key.allowed}",
                remedy=f"add {key.name} to [{key.section}], or create a cluster's files with `viewstamp config new`",
            )
    _complete(values, origins, file)
    settings = _build(values)

    def name(section: str, key: str) -> str:
        origin = origins[section, key]
        place = f"{file} (default)" if origin == "default" else origin.removeprefix("file ")
        return f"{place}: [{section}] {key}"

    settings.check(name)
    return LoadedSettings(settings=settings, origins=origins, directory=os.path.dirname(os.path.abspath(file)))


def _read_file(file: str) -> dict[str, Any]:
    try:
        with open(file, "rb") as stream:
            return tomllib.load(stream)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{file} is not valid TOML: {error}", remedy="correct the line that the message names"
        ) from error
    except RecursionError as error:
        raise ConfigError(
            f"{file} is not a settings file: it is nested too deeply", remedy="correct the file"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8: {error}", remedy="save it as UTF-8") from error
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}",
            remedy="check the path, or create a cluster's files with `viewstamp config new --nodes 3 DIR`",
        ) from error


def _in_document(document: Mapping[str, Any], file: str) -> Iterator[tuple[Key, Any]]:
    for section, table in document.items():
        _check_section(section, f"{file}: [{section}]")
        if not isinstance(table, dict):
            raise ConfigError(
                f"{file}: {section} = {_shown(table)} is not allowed; allowed: a section of this name",
                remedy=f"write [{section}] on a line of its own, and its keys below it",
            )
        for name, value in table.items():
            yield _find(section, name, f"{file}: [{section}] {name} = {_shown(value)}"), value


def _in_environment(environment: Mapping[str, str]) -> Iterator[tuple[Key, str, str]]:
    """Yield (key, variable, text) of each variable for a setting. Variables without two underscores are skipped."""
    for variable, text in sorted(environment.items()):
        section, separator, name = variable.removeprefix(_ENVIRONMENT_PREFIX).partition("__")
        if variable.startswith(_ENVIRONMENT_PREFIX) and separator:
            yield _find(section.lower(), name.lower(), f"environment {variable}={text}"), variable, text


def _split(dotted: str) -> tuple[str, str]:
    section, dot, name = dotted.partition(".")
    if not dot:
        raise ConfigError(f"--set {dotted} has no section", remedy="write --set section.key=value")
    return section, name


def _check_section(section: str, where: str) -> None:
    sections = [*dict.fromkeys(key.section for key in keys_of(NodeSettings)), _ACTORS]
    if section not in sections:
        raise ConfigError(
            f"{where}: there is no section [{section}]{_nearest(section, sections)}; allowed: {', '.join(sections)}",
            remedy="correct the name, or remove it",
        )


def _find(section: str, name: str, where: str) -> Key:
    """Return the setting of this name. Raises ConfigError."""
    _check_section(section, where)
    if section == _ACTORS:
        return actor_key(name)
    keys = keys_of(NodeSettings)
    for key in keys:
        if (key.section, key.name) == (section, name):
            return key
    elsewhere = [key.section for key in keys if key.name == name]
    names = [key.name for key in keys if key.section == section]
    hint = f", but there is one in [{elsewhere[0]}]" if elsewhere else _nearest(name, names)
    raise ConfigError(
        f"{where}: there is no key {name} in [{section}]{hint}; allowed: {', '.join(names)}",
        remedy="correct the name, or remove it",
    )


def _nearest(name: str, names: Iterable[str]) -> str:
    import difflib  # Imported here, because only a mistake needs it.

    found = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {found[0]}?)" if found else ""


def _checked(key: Key, value: Any, where: str) -> Any:
    """Return a value from TOML if it has the right type. Raises ConfigError."""
    if key.kind is dict:
        right = isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
    elif key.unit and isinstance(value, str):
        return _parsed(key, value, where)
    elif key.kind is float:
        right = isinstance(value, (int, float)) and not isinstance(value, bool)
    else:
        # type() and not isinstance(), because bool is a subclass of int and true is not a number here.
        right = type(value) is key.kind
    if not right:
        raise _wrong_type(key, value, where)
    return value


def _parsed(key: Key, text: str, where: str) -> Any:
    """Return a value from the text of a variable or a flag. Raises ConfigError."""
    try:
        if key.kind is bool:
            return {"true": True, "false": False}[text]
        if key.kind is dict:
            pairs = [item.split("=") for item in text.split(",") if item]
            return {node.strip(): address.strip() for node, address in pairs}
        if key.unit and not re.fullmatch(r"[-+0-9._eE]+", text.strip()):
            return key.parse_quantity(text)
        return key.kind(text)
    except (ValueError, KeyError):
        raise _wrong_type(key, text, where) from None


def _wrong_type(key: Key, value: Any, where: str) -> ConfigError:
    if key.unit:
        kind, units = ("a size", SIZE_UNITS) if key.unit == "bytes" else ("a duration", DURATION_UNITS)
        bare = {"s": "seconds", "ms": "milliseconds"}.get(key.unit, key.unit)
        number = f"a {'whole ' if key.kind is int else ''}number of {bare}"
        return ConfigError(
            f"{where}: {key} = {_shown(value)} is not {kind}; allowed: {key.allowed}",
            remedy=f"write {number}, or a number and a unit in quotes: {', '.join(units)}",
        )
    kind = _KINDS[key.kind]
    allowed = key.allowed if kind in key.allowed else f"{kind}: {key.allowed}"
    return ConfigError(
        f"{where}: {key} = {_shown(value)} is not {kind}; allowed: {allowed}", remedy=f"set it to {kind}"
    )


def _shown(value: Any) -> str:
    """Return a value on one line, about as TOML writes it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except TypeError:
        text = str(value)
    return text if len(text) <= 100 else text[:97] + "..."


def _complete(values: dict[tuple[str, str], Any], origins: dict[tuple[str, str], str], file: str) -> None:
    """Fill in the values that follow from others: absolute paths, the advertised address, the origins."""
    tls = (("tls", "authority"), ("tls", "certificate"), ("tls", "key"))
    for at in (("node", "data_dir"), *tls, ("archive", "directory")):
        from_file = origins[at].startswith("file ")
        base = os.path.dirname(os.path.abspath(file)) if from_file else os.getcwd()
        if values[at] and not is_object_url(values[at]):  # The check of the settings refuses it, with its reason.
            values[at] = os.path.abspath(os.path.join(base, values[at]))
    values["node", "advertise"] = values["node", "advertise"] or values["node", "listen"]
    for at in (("wal", "segment_bytes"), ("snapshots", "log_bytes")):
        if values["wal", "bytes_max"] and not values[at]:
            origins[at] = "from wal.bytes_max"


def _build(values: Mapping[tuple[str, str], Any]) -> NodeSettings:
    def of(section: str) -> dict[str, Any]:
        return {name: value for (other, name), value in values.items() if other == section}

    return NodeSettings(
        node=NodeSection(**of("node")),
        cluster=ClusterSection(**of("cluster")),
        wal=WalSection(**of("wal")),
        limits=LimitsSection(**of("limits")),
        timeouts=TimeoutsSection(**of("timeouts")),
        snapshots=SnapshotsSection(**of("snapshots")),
        logging=LoggingSection(**of("logging")),
        tls=TlsSection(**of("tls")),
        archive=ArchiveSection(**of("archive")),
        actors=of(_ACTORS),
    )
