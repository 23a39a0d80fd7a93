"""Container images without a registry: built by buildah, kept as archives in the cache, loaded into containerd."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from tests.testbed import engine
from tests.testbed.apt import IMAGE_TOOLS, ensure_packages
from tests.testbed.base_image import REVISION, ensure_base_file_system
from tests.testbed.commands import output_of, run_logged, succeeds
from tests.testbed.errors import TestbedError
from tests.testbed.filesystem import holds_overlays
from tests.testbed.host_network import build_mounts
from tests.testbed.locks import exclusive, made_whole
from tests.testbed.paths import cache_root
from tests.testbed.programs import COREDNS, ENVOY, PAUSE
from tests.testbed.progress import step
from tests.testbed.tools import ensure_program

BASE_IMAGE = "docker.io/library/debian:bookworm-slim"
ROUTER_IMAGE = f"specfleet.dev/testbed/envoy:{ENVOY.version}"
PAUSE_IMAGE = f"specfleet.dev/testbed/pause:{PAUSE.version}"
ENGINE_IMAGE = f"specfleet.dev/testbed/vllm-openai:v{engine.VERSION}"
COREDNS_IMAGE = f"specfleet.dev/testbed/coredns:{COREDNS.version}"


def archive_of(tag: str) -> Path:
    """Where the archive of the image `tag` lies in the cache."""
    digest = hashlib.sha256(tag.encode()).hexdigest()[:12]
    return cache_root() / "images" / f"{tag.rsplit('/', 1)[-1].replace(':', '_')}-{digest}.tar"


def ensure_base_image() -> Path:
    """The archive of the base image, which buildah's own store then has under the name that a FROM line uses."""
    archive = archive_of(f"{BASE_IMAGE}+{REVISION}")
    root = ensure_base_file_system()
    with exclusive("images"):
        if not archive.is_file() or not _stored(BASE_IMAGE):
            with step("base image", f"{BASE_IMAGE} from the base file system"):
                container = output_of(_buildah("from", "scratch")).strip()
                run_logged(_buildah("add", "--quiet", container, root, "/"), "image-base")
                run_logged(_buildah("config", "--cmd", "bash", container), "image-base")
                run_logged(_buildah("commit", "--quiet", "--rm", container, BASE_IMAGE), "image-base")
                _save(BASE_IMAGE, archive)
    return archive


def ensure_router_image() -> Path:
    """The archive of the router image: the base file system and Envoy."""
    return _made(ROUTER_IMAGE, BASE_IMAGE, *_entry(ensure_program(ENVOY)))


def ensure_pause_image() -> Path:
    """The archive of the image that holds a pod's namespaces open."""
    return _made(PAUSE_IMAGE, "scratch", *_entry(ensure_program(PAUSE)))


def ensure_coredns_image() -> Path:
    """The archive of the CoreDNS image."""
    return _made(COREDNS_IMAGE, "scratch", *_entry(ensure_program(COREDNS)))


def ensure_engine_image() -> Path:
    """The archive of the vLLM image: it is started like the public one, and finds the engine at `MOUNT_PATH`."""
    path = f"ENV PATH={engine.MOUNT_PATH}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return _made(ENGINE_IMAGE, BASE_IMAGE, None, [path, 'ENTRYPOINT ["vllm", "serve"]'])


def build_archive(tag: str, dockerfile: Path, context: Path) -> Path:
    """Build a Dockerfile; returns the archive of the image.

    Steps that did not change come from buildah's cache. The machine's package indexes and CA certificates are mounted
    while it builds and leave no trace in the image.

    Raises:
        TestbedError: a file is missing or a step of the Dockerfile failed.
    """
    if not dockerfile.is_file():
        raise TestbedError(f"expected a Dockerfile at {dockerfile}, found none")
    ensure_base_image()
    archive = archive_of(tag)
    with (
        exclusive("images"),
        tempfile.TemporaryDirectory() as scratch,
        step("image", f"build {tag} from {dockerfile}"),
    ):
        options = ["--isolation", "chroot", "--network", "host", "--layers", "--pull-never", "--format", "docker"]
        volumes = [word for mount in build_mounts(Path(scratch)) for word in ("--volume", mount)]
        run_logged(
            _buildah("bud", *options, *volumes, "--tag", tag, "--file", dockerfile, context),
            "image-" + archive.stem,
            nice=True,
        )
        _save(tag, archive)
    return archive


def _entry(program: Path) -> tuple[Path, list[str]]:
    place = f"/usr/local/bin/{program.name}"
    return program, [f"COPY {program.name} {place}", f'ENTRYPOINT ["{place}"]']


def _made(tag: str, base: str, program: Path | None, instructions: list[str]) -> Path:
    archive = archive_of(tag)
    if archive.is_file():
        return archive
    if base == BASE_IMAGE:
        ensure_base_image()
    with exclusive("images"), tempfile.TemporaryDirectory() as scratch, step("image", f"make {tag}"):
        if program is not None:
            shutil.copy2(program, scratch)
        dockerfile = Path(scratch) / "Dockerfile"
        dockerfile.write_text("\n".join([f"FROM {base}", *instructions, ""]))
        run_logged(
            _buildah("bud", "--isolation", "chroot", "--pull-never", "--tag", tag, "--file", dockerfile, scratch),
            f"image-{archive.stem}",
        )
        _save(tag, archive)
    return archive


def _save(tag: str, archive: Path) -> None:
    with made_whole(archive) as draft:
        run_logged(_buildah("push", "--quiet", tag, f"docker-archive:{draft}:{tag}"), f"save-{archive.stem}")


def _stored(tag: str) -> bool:
    return succeeds(_buildah("inspect", "--type", "image", tag))


def _buildah(*words: str | Path) -> list[str | Path]:
    ensure_packages(IMAGE_TOOLS)
    store = cache_root() / "containers"
    driver = "overlay" if holds_overlays(cache_root()) else "vfs"
    run_root = Path("/run/specfleet-testbed/containers")
    return ["buildah", "--root", store / driver, "--runroot", run_root, "--storage-driver", driver, *words]
