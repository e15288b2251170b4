"""The text of a settings file with another cluster: its id and its members. Everything else stays, comments too."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Mapping

from viewstamp.config.load import settle
from viewstamp.errors import ConfigError

__all__ = ["with_cluster"]

_SECTION = re.compile(r"^[ \t]*\[[ \t]*([A-Za-z_.]+)[ \t]*\]", re.MULTILINE)
_VALUE = r"\"[^\"\n]*\"|'[^'\n]*'|\{[^}\n]*\}"


def with_cluster(file: str, cluster: str, members: Mapping[str, str]) -> str:
    """Return the text of a settings file, in which the cluster has this id and these voters, and no learners.

    The members in the settings count only while a log holds no membership. They are changed all the same, because
    nodes that are started with an empty directory and the old list would elect a leader among themselves.

    Raises:
      ConfigError: a setting of [cluster] is not on one line, so it has to be changed by hand.
      OSError: the file cannot be read.
    """
    with open(file, encoding="utf-8") as stream:
        text = stream.read()
    table = ", ".join(f"{json.dumps(member)} = {json.dumps(address)}" for member, address in members.items())
    values = {"id": json.dumps(cluster), "members": f"{{ {table} }}", "learners": "{}", "leader_hint": '""'}
    starts = [(found.start(), found[1]) for found in _SECTION.finditer(text)] + [(len(text), "")]
    for (start, name), (end, _) in itertools.pairwise(starts):
        if name == "cluster":
            section = text[start:end]
            for key, value in values.items():
                line = re.compile(rf"^([ \t]*{key}[ \t]*=[ \t]*)({_VALUE})", re.MULTILINE)
                section = line.sub(rf"\g<1>{value}", section)
            text = text[:start] + section + text[end:]
            break
    changed = settle(tomllib.loads(text), file, environment={}, overrides={}).settings.cluster
    if changed.id != cluster or dict(changed.members) != dict(members) or changed.learners:
        raise ConfigError(
            f"{file} has settings of [cluster] that are not on one line",
            remedy=f"write into [cluster] yourself: id = {values['id']}, members = {values['members']}, learners ="
            " {}; then repeat the command",
        )
    return text
