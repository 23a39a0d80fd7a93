"""The one error that the test bed raises."""

from __future__ import annotations

from pathlib import Path


class TestbedError(Exception):
    """A step failed: says what was expected, what was found, and where to read on.

    Args:
        message: one or two sentences for a person.
        log: the log of the part that failed, if it has one.
    """

    __test__ = False

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message)
        self.log = log
        self.step: str | None = None

    def report(self, tail_lines: int = 20) -> str:
        """The message, and the end of the log with its path."""
        if self.log is None or not self.log.is_file():
            return str(self)
        lines = self.log.read_text(errors="replace").splitlines()[-tail_lines:]
        return "\n".join([str(self), f"last lines of {self.log}:", *(f"  | {line}" for line in lines)])
