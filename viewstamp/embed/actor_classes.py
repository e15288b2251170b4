"""The classes behind the names of ``[actors]``: imported, and checked, when a node starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from viewstamp.actors.replicated import ReplicatedActor
from viewstamp.errors import ConfigError

__all__ = ["NO_ACTORS", "Actors", "import_actors"]

Actors = Mapping[str, type[ReplicatedActor]]
"""Name to class."""

NO_ACTORS: Final[Actors] = MappingProxyType({})


def import_actors(entries: Mapping[str, str], directory: str = "") -> dict[str, type[ReplicatedActor]]:
    """Import the classes that ``entries`` name: actor to ``module:Class``. Blocks.

    The current directory and then ``directory`` are added to the end of ``sys.path`` of this process, and stay there.

    Raises:
      ConfigError: names the actor, the module, the class, and the reason.
    """
    if entries:
        for place in (os.getcwd(), directory):
            # At the end, so that the imports of the program itself do not change.
            if place and place not in sys.path:
                sys.path.append(place)
    return {name: _import_actor(name, target, directory) for name, target in entries.items()}


def _import_actor(name: str, target: str, directory: str) -> type[ReplicatedActor]:
    where = f"[actors] {name} = {target!r}"
    module_name, _, path = target.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _broken(where, module_name, error) from error
        places = " or ".join(dict.fromkeys(filter(None, (os.getcwd(), directory))))
        raise ConfigError(
            f"{where}: there is no module {error.name}, neither installed nor in {places}",
            remedy="start the node in the directory that holds it, install it, or correct the name",
        ) from error
    except Exception as error:
        raise _broken(where, module_name, error) from error
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{where}: {module_name} has no class {path}", remedy="correct the name")
        found = getattr(found, part)
    if not isinstance(found, type) or not issubclass(found, ReplicatedActor):
        raise ConfigError(
            f"{where}: {module_name} has {path}, but that is no class of replicated actors",
            remedy="derive it from viewstamp.ReplicatedActor",
        )
    return found


def _broken(where: str, module: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{where}: importing {module} failed: {type(error).__name__}: {error}",
        remedy=f"correct the module: python -c 'import {module}' shows where",
    )
