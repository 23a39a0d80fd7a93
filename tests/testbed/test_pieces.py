"""The parts of the test bed that decide something, without a bed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed import host_network, locks, network, processes, programs, registry
from tests.testbed.errors import TestbedError
from tests.testbed.processes import Daemon
from tests.testbed.progress import step
from tests.testbed.templates import filled

RULES = """\
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:DOCKER - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SEP-ABC - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 10.213.0.0/24 ! -o specfleet0 -m comment --comment specfleet-testbed -j MASQUERADE
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A KUBE-SERVICES -d 10.214.0.10/32 -p udp -j KUBE-SEP-ABC
COMMIT
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a cache of its own."""
    monkeypatch.setenv("SPECFLEET_CACHE", str(tmp_path / "cache"))


def test_only_what_a_bed_made_is_taken_out_of_the_packet_rules() -> None:
    chains, rules = network.leftovers(RULES)
    assert chains == ["KUBE-SERVICES", "KUBE-SEP-ABC"]
    assert [rule.split()[:2] for rule in rules] == [["-D", "PREROUTING"], ["-D", "POSTROUTING"]]
    assert "KUBE-SERVICES" in rules[0]
    assert "specfleet-testbed" in rules[1]


def test_every_program_has_a_version_and_a_place_keyed_by_it() -> None:
    for program in programs.ALL.values():
        assert program.version
        assert program.path.parts[-3:] == (program.name, program.version, program.name)


def test_a_module_without_the_program_is_said_by_name(tmp_path: Path) -> None:
    go_mod = tmp_path / "go.mod"
    go_mod.write_text("module x\n\nrequire example.com/other v1.0.0\n")
    with pytest.raises(TestbedError, match="require line for example"):
        programs.required_version(go_mod, "example.com/wanted")


def test_a_build_that_fails_leaves_nothing_under_the_final_name(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "program"

    def interrupted() -> None:
        with locks.made_whole(target) as draft:
            draft.write_text("half")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        interrupted()
    assert not target.exists()
    with locks.made_whole(target) as draft:
        assert not draft.exists()
        draft.write_text("whole")
    assert target.read_text() == "whole"


def test_a_failed_step_is_named_once_and_shows_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    with pytest.raises(TestbedError) as caught, step("outer", "all"), step("inner", "a part"):
        raise TestbedError("expected 1, found 2", log)
    report = caught.value.report(tail_lines=2)
    assert report.startswith("step inner: expected 1, found 2")
    assert "line 98\n  | line 99" in report
    assert "line 97" not in report
    assert str(log) in report


def test_a_daemon_outlives_nobody_and_is_found_again(tmp_path: Path) -> None:
    daemon = Daemon("sleeper", tmp_path)
    daemon.start([sys.executable, "-c", "import time; time.sleep(600)"])
    first = daemon.process
    assert first is not None
    again = Daemon("sleeper", tmp_path)
    again.start(["/never/run"])
    assert again.alive
    assert again.process == first
    again.stop()
    assert not first.alive
    assert not daemon.alive


def test_daemons_that_ignore_the_polite_signal_are_ended_together(tmp_path: Path) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    daemons = [Daemon(name, tmp_path) for name in ("one", "two", "three")]
    for daemon in daemons:
        daemon.start([sys.executable, "-c", code])

    def all_ignore_it() -> bool:
        return all("up" in daemon.log.read_text() for daemon in daemons)

    daemons[-1].wait_for("all to ignore SIGTERM", all_ignore_it, 30.0)
    running = [daemon.process for daemon in daemons]
    processes.end([process for process in running if process is not None], grace_seconds=0.2)
    assert [daemon.alive for daemon in daemons] == [False, False, False]


def test_a_daemon_that_ends_is_reported_with_its_log(tmp_path: Path) -> None:
    daemon = Daemon("fails", tmp_path)
    daemon.start([sys.executable, "-c", "print('bad flag'); raise SystemExit(3)"])
    with pytest.raises(TestbedError, match="expected an answer, but fails has ended") as caught:
        daemon.wait_for("an answer", lambda: False, 30.0)
    assert "bad flag" in caught.value.report()


def test_a_reused_process_id_is_not_taken_for_the_process() -> None:
    own = processes.Process.of(os.getpid())
    assert own is not None
    assert own.alive
    assert not processes.Process(own.pid, own.started_ticks + 1).alive


def test_beds_get_ports_of_their_own_and_keep_them(tmp_path: Path) -> None:
    first = registry.claim(tmp_path / "a", 3, owned=False)
    second = registry.claim(tmp_path / "b", 3, owned=False)
    assert not set(first.ports) & set(second.ports)
    assert registry.claim(tmp_path / "a", 3, owned=False).ports == first.ports
    registry.release(tmp_path / "a")
    assert [bed.state for bed in registry.beds()] == [tmp_path / "b"]


def test_a_bed_is_an_orphan_once_its_owner_has_ended(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from tests.testbed import registry
registry.claim(Path({str(tmp_path / "a")!r}), 3, owned=True)
"""
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
    registry.claim(tmp_path / "b", 3, owned=True)
    assert {bed.state.name: bed.orphaned for bed in registry.beds()} == {"a": True, "b": False}


def test_a_template_with_a_missing_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        filled("kube-proxy.yaml", pod_cidr="10.0.0.0/8")


def test_package_indexes_reach_a_build_as_files_not_as_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "ca.crt"
    bundle.write_text("certificates")
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    mounts = dict(mount.split(":", 1) for mount in host_network.build_mounts(tmp_path))
    assert mounts[str(bundle)] == "/etc/ssl/certs/ca-certificates.crt:ro"
    assert "index-url = https://index.example/simple" in (tmp_path / "pip.conf").read_text()
    assert mounts[str(tmp_path / "pip.conf")] == "/etc/pip.conf:ro"
