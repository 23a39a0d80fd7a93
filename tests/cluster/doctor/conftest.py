"""One API server with the operator and a fleet, all well; each test of this folder breaks and mends it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.api import Api
from tests.cluster.doctor.bed import (
    Bed,
    install,
    make_cluster,
    make_fleet,
)
from tests.testbed.api import ensure_control_plane


@pytest.fixture(scope="package")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A cluster with the operator and a fleet, all well."""
    plane = ensure_control_plane(tmp_path_factory.mktemp("doctor") / "state")
    bed = Bed(Api(plane.kubeconfig), plane.kubeconfig)
    make_cluster(bed)
    install(bed)
    make_fleet(bed)
    yield bed
    plane.stop()


@pytest.fixture
def bed(sound: Bed) -> Iterator[Bed]:
    """The sound cluster, to be broken by one test."""
    one = Bed(sound.api, sound.kubeconfig)
    one.lease()
    yield one
    one.repair()
