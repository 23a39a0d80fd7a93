"""The node with the operator in it, once a test run; each test has a fleet of its own and takes it down again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.node import adopted
from tests.node.demo import example
from tests.node.install import apply_and_wait, cluster_ip, install_operator, operator_image, remove
from tests.node.kube import Kube, Manifest, is_true
from tests.node.stub_fleet import stub_fleet, stub_image
from tests.testbed import api

NAMESPACE = "node-tests"
_NUMBERS = itertools.count(1)

Serve = Callable[..., "Fleet"]


class Fleet:
    """A ready SpecDeployment."""

    def __init__(self, kube: Kube, manifest: Manifest) -> None:
        self.kube = kube
        self.name: str = manifest["metadata"]["name"]
        self.namespace: str = manifest["metadata"]["namespace"]

    @property
    def endpoint(self) -> str:
        """URL of its Service."""
        return cluster_ip(self.kube, self.name, self.namespace)

    def body(self) -> Manifest:
        """The object now."""
        found = self.kube.get("specdeployment", self.name, self.namespace)
        assert found is not None
        return found

    def route(self, name: str) -> dict[str, Any]:
        """One route of its status."""
        return next(one for one in self.body()["status"]["routes"] if one["name"] == name)


def say(line: str) -> None:
    """Progress goes to pytest's captured output."""
    print(line)


@pytest.fixture(scope="session")
def kube() -> Kube:
    """The running node."""
    return Kube(api.ensure_node().kubeconfig)


@pytest.fixture
def team(kube: Kube) -> Iterator[None]:
    """The hand-written fleet's namespace, gone before and after: its engines and a demo's do not fit into one node."""
    kube.delete("namespace", adopted.NAMESPACE, "")
    yield
    kube.delete("namespace", adopted.NAMESPACE, "")


@pytest.fixture(scope="session")
def operator(kube: Kube) -> str:
    """The operator, installed by its chart; returns its image."""
    image = operator_image()
    install_operator(kube, image)
    return image


@pytest.fixture(scope="session")
def stub(operator: str) -> str:
    """The stub engine's image."""
    return stub_image(operator)


@pytest.fixture(scope="session")
def namespace(kube: Kube) -> str:
    """Where the tests' fleets live."""
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return NAMESPACE


@pytest.fixture
def serve(kube: Kube, stub: str, namespace: str) -> Iterator[Serve]:
    """Makes ready fleets of stub engines; options as `stub_fleet` takes them."""
    made: list[str] = []

    def serve(**options: Any) -> Fleet:
        manifest = stub_fleet(f"fleet-{next(_NUMBERS)}", namespace, stub, **options)
        made.append(manifest["metadata"]["name"])
        return Fleet(kube, apply_and_wait(kube, manifest, say, seconds=180))

    yield serve
    for name in made:
        remove(kube, name, namespace)


@pytest.fixture(scope="session")
def real_fleet(kube: Kube, operator: str) -> Fleet:
    """The demo's fleet on real vLLM; one that runs is used, and it is left running."""
    assert operator
    manifest = example()
    found = kube.get("specdeployment", manifest["metadata"]["name"], manifest["metadata"]["namespace"])
    return Fleet(kube, found if found is not None and is_true(found) else apply_and_wait(kube, manifest, say))
