"""The pages of the manual, and the examples in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from specfleet.api.v1alpha1 import KIND
from tests.unit.chart.helm import REPOSITORY

PATTERNS = ("*.md", "docs/**/*.md", "charts/**/*.md", "manifests/**/*.md")
PAGES = sorted(page for pattern in PATTERNS for page in REPOSITORY.glob(pattern))


def examples() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every whole SpecDeployment in the pages."""
    for page in PAGES:
        for block in re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL):
            for document in yaml.safe_load_all(block):
                if isinstance(document, dict) and document.get("kind") == KIND:
                    yield str(page.relative_to(REPOSITORY)), document
