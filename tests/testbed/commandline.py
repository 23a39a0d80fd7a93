"""The sub-commands of `python3 -m tests.testbed`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from tests.testbed import api, light_bed, paths
from tests.testbed.programs import ALL
from tests.testbed.tools import ensure_program, program_named


def parser() -> argparse.ArgumentParser:
    """The parser; each sub-command sets `run` to its function."""
    top = argparse.ArgumentParser(prog="python3 -m tests.testbed", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="start the bed; returns at once if it runs and is well")
    up.add_argument("--control-plane-only", action="store_true", help="etcd and the API server, no node")
    up.add_argument("--with-controllers", action="store_true", help="with it, also kube-controller-manager")
    _state(up)
    up.set_defaults(run=_up)

    down = commands.add_parser("down", help="end the bed and remove all that it left on the machine")
    _state(down)
    down.set_defaults(run=_down)

    status = commands.add_parser("status", help="say what runs; exit 0 only if the bed is well")
    _state(status)
    status.set_defaults(run=_status)

    env = commands.add_parser("env", help="print shell exports: KUBECONFIG and PATH")
    _state(env)
    env.set_defaults(run=_env)

    tools = commands.add_parser("tools", help="build or fetch programs and print their paths")
    tools.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(ALL)}")
    tools.set_defaults(run=_tools)
    return top


def _state(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--state", type=Path, default=paths.node_state(), help="state directory (default: %(default)s)"
    )


def _up(options: argparse.Namespace) -> int:
    if options.control_plane_only:
        layout = light_bed.up(options.state, controllers=options.with_controllers, owned=False)
        print(layout.kubeconfig)
        return 0
    raise NotImplementedError


def _down(options: argparse.Namespace) -> int:
    light_bed.down(options.state)
    return 0


def _status(options: argparse.Namespace) -> int:
    well = light_bed.healthy(options.state)
    print(f"{options.state}: control plane only: {'ready' if well else 'not running'}")
    return 0 if well else 1


def _env(options: argparse.Namespace) -> int:
    programs = {api.kubectl_binary().parent: None, api.helm_binary().parent: None}
    print(f"export KUBECONFIG={shlex.quote(str(options.state.resolve() / 'kubeconfig'))}")
    print(f'export PATH={shlex.quote(":".join(str(folder) for folder in programs))}:"$PATH"')
    return 0


def _tools(options: argparse.Namespace) -> int:
    for program in [program_named(name) for name in options.names] or list(ALL.values()):
        print(ensure_program(program))
    return 0
