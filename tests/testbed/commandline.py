"""The sub-commands of `python3 -m tests.testbed`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from tests.testbed import api, engine, images, light_bed, model, node_bed, paths
from tests.testbed.gpus import set_gpus
from tests.testbed.kubernetes_node import NODE_NAME
from tests.testbed.programs import ALL
from tests.testbed.state_dir import kind_of
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

    prometheus = commands.add_parser("prometheus", help="fetch Prometheus and print its path")
    prometheus.set_defaults(run=_prometheus)

    base = commands.add_parser("base-image", help="make the base image (debian:bookworm-slim with python3)")
    base.set_defaults(run=_base_image)

    router = commands.add_parser("router-image", help="make the router image and print its name")
    router.set_defaults(run=_router_image)

    build = commands.add_parser("image-build", help="build a Dockerfile; load it into the node if that runs")
    build.add_argument("--tag", required=True, help="full name of the image, with registry and tag")
    build.add_argument("--file", type=Path, default=Path("Dockerfile"), help="default: %(default)s")
    build.add_argument("--context", type=Path, default=Path("."), help="default: %(default)s")
    _state(build)
    build.set_defaults(run=_image_build)

    load = commands.add_parser("image-import", help="load an image into the node")
    load.add_argument("--tag", required=True, help="full name of the image")
    load.add_argument("--archive", type=Path, help="a docker archive (default: what image-build made for the tag)")
    _state(load)
    load.set_defaults(run=_image_import)

    vllm = commands.add_parser("vllm", help="install vLLM for CPU and print the path of its Python")
    vllm.set_defaults(run=_vllm)

    small = commands.add_parser("model", help="make the small real model and print its directory")
    small.set_defaults(run=_model)

    gpus = commands.add_parser("gpus", help="let the node say that it has N GPUs")
    gpus.add_argument("count", type=int, metavar="N")
    _state(gpus)
    gpus.set_defaults(run=_gpus)
    return top


def _state(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--state", type=Path, default=paths.node_state(), help="state directory (default: %(default)s)"
    )


def _up(options: argparse.Namespace) -> int:
    if options.control_plane_only:
        print(light_bed.up(options.state, controllers=options.with_controllers, owned=False).kubeconfig)
    else:
        print(node_bed.up(options.state).kubeconfig)
    return 0


def _down(options: argparse.Namespace) -> int:
    if kind_of(options.state) == "control plane only":
        light_bed.down(options.state)
    else:
        node_bed.down(options.state)
    return 0


def _status(options: argparse.Namespace) -> int:
    kind = kind_of(options.state)
    if kind is None:
        problems = ["no test bed here"]
    else:
        problems = (node_bed if kind == "node" else light_bed).unwell(options.state)
    print(f"{options.state}: {kind or 'nothing'}: {'; '.join(problems) or 'well'}")
    return 1 if problems else 0


def _env(options: argparse.Namespace) -> int:
    folders = [str(program().parent) for program in (api.kubectl_binary, api.helm_binary, api.envoy_binary)]
    print(f"export KUBECONFIG={shlex.quote(str(options.state.resolve() / 'kubeconfig'))}")
    print(f'export PATH={shlex.quote(":".join(folders))}:"$PATH"')
    return 0


def _tools(options: argparse.Namespace) -> int:
    for program in [program_named(name) for name in options.names] or list(ALL.values()):
        print(ensure_program(program))
    return 0


def _prometheus(options: argparse.Namespace) -> int:
    print(api.prometheus_binary())
    return 0


def _base_image(options: argparse.Namespace) -> int:
    print(images.ensure_base_image())
    return 0


def _router_image(options: argparse.Namespace) -> int:
    images.ensure_router_image()
    print(images.ROUTER_IMAGE)
    return 0


def _image_build(options: argparse.Namespace) -> int:
    print(images.build_archive(options.tag, options.file, options.context))
    if node_bed.runs(options.state):
        node_bed.load_image(options.state, options.tag)
    return 0


def _image_import(options: argparse.Namespace) -> int:
    node_bed.load_image(options.state, options.tag, options.archive)
    return 0


def _vllm(options: argparse.Namespace) -> int:
    print(engine.ensure_vllm())
    return 0


def _model(options: argparse.Namespace) -> int:
    print(model.ensure_model())
    return 0


def _gpus(options: argparse.Namespace) -> int:
    set_gpus(node_bed.layout_of(options.state).kubeconfig, NODE_NAME, options.count)
    return 0
