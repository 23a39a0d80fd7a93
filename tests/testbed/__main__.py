"""`python3 -m tests.testbed`: bring a bed up or down, or make one of its pieces."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.testbed import commandline
from tests.testbed.errors import TestbedError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0, or 1 with a message on standard error."""
    options: argparse.Namespace = commandline.parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except TestbedError as error:
        print(f"testbed: {error.report()}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("testbed: interrupted; run it again, finished parts are kept", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
