"""The SpecDeployment that is printed: its name, its notes, its text. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specfleet.api.names import BASELINE_POOL, pool_object, router_object
from specfleet.api.v1alpha1 import API_VERSION, KIND, MAX_NAME
from specfleet.cli.adopting.scene import AdoptError, Scene
from specfleet.cli.render import manifest_yaml

Manifest = dict[str, Any]
_WIDTH = 110
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True)
class Adopted:
    """A SpecDeployment and what to know about it.

    Args:
        manifest: the object.
        comments: what was adopted, in sentences.
        notes: what was not carried over, and what a person should look at.
    """

    manifest: Manifest
    comments: tuple[str, ...]
    notes: tuple[str, ...]

    def text(self) -> str:
        """YAML with the comments and notes above it."""
        lines = [line for comment in self.comments for line in _comment(comment, "# ", "# ")]
        if self.notes:
            lines += ["#", "# Not carried over, or to look at:"]
        lines += [line for note in self.notes for line in _comment(note, "# - ", "#   ")]
        return "\n".join(lines) + "\n" + manifest_yaml([self.manifest])


def _comment(text: str, first: str, others: str) -> list[str]:
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return textwrap.wrap(
        plain,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def free_name(
    wanted: str | None, workload: str, pools: Sequence[str], scene: Scene, same: Callable[[Manifest], bool]
) -> str:
    """The SpecDeployment's name: the one that was asked for, else the workload's, changed where objects would clash.

    Args:
        pools: pools that are rendered.
        same: whether a SpecDeployment is of what is adopted, which then keeps its name.

    Raises:
        AdoptError: the name that was asked for is no name, or clashes.
    """
    if wanted is not None:
        if not _NAME.fullmatch(wanted) or len(wanted) > MAX_NAME:
            raise AdoptError(
                f"--name {wanted}: expected at most {MAX_NAME} lower-case letters, digits and dashes, a letter first"
            )
        clash = scene.clashes(wanted, _objects(wanted, pools), same)
        if clash:
            raise AdoptError(f"--name {wanted}: {', '.join(clash)} exists already, choose another name")
        return wanted
    plain = re.sub(r"[^a-z0-9]+", "-", workload.lower()).strip("-")
    plain = plain if plain[:1].isalpha() else f"s-{plain}"
    for ending in ("", "-spec", *(f"-spec{number}" for number in range(2, 100))):
        name = plain[: MAX_NAME - len(ending)].rstrip("-") + ending
        if not scene.clashes(name, _objects(name, pools), same):
            return name
    raise AdoptError(f"no name like {plain} is free: choose one with --name")


def _objects(name: str, pools: Sequence[str]) -> set[str]:
    owned = [pool_object(name, pool) for pool in (BASELINE_POOL, *pools)] if pools else []
    services = {f"Service/{one}" for one in (name, *owned)}
    return services | {f"Deployment/{one}" for one in (router_object(name), *owned)}


def manifest(name: str, namespace: str, spec: Manifest) -> Manifest:
    """The object around a spec."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
