"""Writes every `objects.yaml` anew: `python -m tests.render.regenerate`. Look at the diff before you commit it."""

from __future__ import annotations

from tests.render.cases import case_folders, case_name, golden_text


def main() -> None:
    """Regenerates all golden files."""
    for folder in case_folders():
        path = folder / "objects.yaml"
        text = golden_text(folder)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"wrote {case_name(folder)}/objects.yaml")


if __name__ == "__main__":
    main()
