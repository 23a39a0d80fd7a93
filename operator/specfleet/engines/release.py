"""Which release of an engine an image is. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

_REPOSITORY = re.compile(r"[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?")
_RELEASE_TAG = re.compile(r"v?(?P<version>[0-9]+\.[0-9]+(\.[0-9]+)?((\.|-)?(rc|post|a|b|dev)[0-9]+)?)([-_+].*)?")


@dataclass(frozen=True, order=True)
class Minor:
    """A minor release, such as 0.32; what varies between engine releases varies by it."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: str) -> Minor:
        """From `0.32`. Raises ValueError when it is none."""
        major, minor = text.split(".")
        return cls(int(major), int(minor))

    @classmethod
    def of(cls, version: Version) -> Minor:
        """The minor release that a version belongs to."""
        return cls(version.major, version.minor)


def image_tag(image: str) -> str | None:
    """The tag of an image reference, without registry port and digest; None where there is none."""
    name = image.split("@", 1)[0].rsplit("/", 1)[-1]
    return name.split(":", 1)[1] if ":" in name else None


def is_image_reference(image: str) -> bool:
    """Whether a container runtime would take it: no URL, and the repository in lower case (the host may differ)."""
    name = image.split("@", 1)[0]
    first, slash, rest = name.partition("/")
    path = rest if slash and (first == "localhost" or "." in first or ":" in first) else name
    return _REPOSITORY.fullmatch(path) is not None


def tag_version(image: str) -> Version | None:
    """The release that an image tag names (`v0.32.0`, `0.32.0-cu129`); None for latest, nightly or a digest."""
    tag = image_tag(image)
    match = _RELEASE_TAG.fullmatch(tag) if tag is not None else None
    return parse_version(match["version"]) if match is not None else None


def parse_version(text: str) -> Version | None:
    """A version such as `0.32.0`, `v0.32` or `0.32.0+cu129`; None where it is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def agree(one: Version, other: Version) -> bool:
    """Whether two versions can be the same release: `0.32` agrees with `0.32.1`, `0.32.0` does not."""
    parts = min(len(one.release), len(other.release))
    return one.release[:parts] == other.release[:parts] and one.pre == other.pre
