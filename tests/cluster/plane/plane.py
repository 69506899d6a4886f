"""A real control plane on this machine: etcd, API server, controller manager, default scheduler, kwok as kubelets.

Each is a process that can be killed, paused and started again on its own port; everything they write is in one folder.
"""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.rest import RestApi, connect
from tests.cluster.plane.warm import Forked, Warm

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
START_S = 60.0
"""How long a component may take until it answers, on a machine that is busy with other tests."""

OUR_PORTS = range(10_000, 32_000)
"""Below those that Linux gives to connections."""

GATES = "--feature-gates=DRAExtendedResource=true"
"""Off by itself in Kubernetes 1.34, on from 1.36."""

OURS_RUN = [sys.executable, "-m", "kai_solver"]
ADMIN, OURS = "admin-token", "our-token"
ACCOUNT = "system:serviceaccount:kai-solver:kai-solver"


def free_ports(count: int) -> list[int]:
    """Free ports; all are held until all are known.

    Ports that the system gives out by itself are left alone: it may give one to a connection before it is used.
    """
    sockets: list[socket.socket] = []
    while len(sockets) < count:
        with contextlib.suppress(OSError):
            sockets.append(socket.create_server(("127.0.0.1", OUR_PORTS[secrets.randbelow(len(OUR_PORTS))])))
    ports = [int(found.getsockname()[1]) for found in sockets]
    for found in sockets:
        found.close()
    return ports


def wait_for(what: str, is_so: Callable[[], bool], limit_s: float = START_S, look_s: float = 0.1) -> None:
    """Wait until something is so.

    Raises
    ------
    AssertionError
        It was not within the limit.
    """
    ends_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < ends_s, f"not within {limit_s:.0f} s: {what}"
        time.sleep(look_s)


def resident_mib(pid: int) -> float:
    """Memory of a process; 0 where it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
    return 0.0


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Component:
    """One process: what it is started with, and where it writes.

    ``warm``: forks it where the command is ours; without one it is started like every other command.
    """

    name: str
    command: list[str]
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    warm: Warm | None = None
    process: "subprocess.Popen[bytes] | Forked | None" = None

    @property
    def log(self) -> Path:
        """What it said, over all its lives."""
        return self.folder / f"{self.name}.log"

    @property
    def runs(self) -> bool:
        """Whether its process is there (it may be paused)."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Begin a life, as leader of a process group of its own, so that its children end with it."""
        if self.warm is not None and self.command[:3] == OURS_RUN:
            self.process = self.warm.start(self.command[3:], os.environ | self.env, self.log)
            return
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self.command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env=os.environ | self.env,
                start_new_session=True,
            )

    def children(self, script: str = "") -> list[int]:
        """Its child processes that run this script; without one all of them."""
        assert self.process is not None
        found = []
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parent = int(status.read_text().rpartition(")")[2].split()[1])
                words = (status.parent / "cmdline").read_text().split("\0")
                if parent == self.process.pid and any(word.endswith(script) for word in words):
                    found.append(int(status.parent.name))
        return found

    def kill(self) -> None:
        """End it at once, as a machine that loses its power does."""
        self._end(signal.SIGKILL, 10.0)

    def stop(self, limit_s: float = 30.0) -> int | None:
        """Ask it to end, and wait; its exit code."""
        self._end(signal.SIGTERM, limit_s)
        return self.process.returncode if self.process else None

    def pause(self) -> None:
        """Stop the clock of the process itself; its children go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on as if nothing had been."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _end(self, number: signal.Signals, limit_s: float) -> None:
        if self.process is None or not self.runs:
            return
        self.process.send_signal(signal.SIGCONT)
        if number == signal.SIGKILL:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10.0)


class Plane:
    """The control plane.

    Parameters
    ----------
    programs
        Folders of the built programs: Kubernetes with etcd, and kwok.
    folder
        For data, keys and logs.
    lease_s
        How long a node may be silent; its kubelet renews its lease four times as often.
    """

    def __init__(self, programs: tuple[Path, Path], folder: Path, lease_s: int = 40) -> None:
        self.folder = folder
        self._lease_s = lease_s
        self.port, self._etcd_port, self._peer_port = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self.authority = folder / "certs" / "apiserver.crt"
        self._write_keys()
        self.kubeconfig = self.write_kubeconfig("admin", ADMIN)
        kubernetes, kwok = programs
        self.etcd = Component("etcd", [str(kubernetes / "etcd"), *self._etcd_flags()], folder)
        self.apiserver = Component("apiserver", [str(kubernetes / "kube-apiserver"), *self._apiserver_flags()], folder)
        self.manager = Component(
            "controller-manager", [str(kubernetes / "kube-controller-manager"), *self._manager_flags()], folder
        )
        self.scheduler = Component("scheduler", [str(kubernetes / "kube-scheduler"), *self._scheduler_flags()], folder)
        self.kubelets = Component("kwok", [str(kwok / "kwok"), *self._kwok_flags()], folder)
        self.warm: Warm | None = None
        """Set by those who start many controllers for a short time."""
        self._api: RestApi | None = None

    @property
    def api(self) -> RestApi:
        """A connection with all rights."""
        if self._api is None:
            self._api = connect(str(self.kubeconfig), connections=64, user_agent="test")
        return self._api

    def start(self) -> None:
        """Start everything but the default scheduler, and wait until the API server answers."""
        self.etcd.start()
        self.apiserver.start()
        self.wait_ready()
        self.manager.start()
        self.kubelets.start()

    def wait_ready(self) -> None:
        """Wait until the API server says that it is ready."""

        def is_over() -> bool:
            return not self.apiserver.runs or self.is_ready()

        wait_for(f"the API server is ready, see {self.apiserver.log}", is_over)
        assert self.apiserver.runs, f"the API server has ended: {self.apiserver.log.read_text()[-500:]}"

    def is_ready(self) -> bool:
        """Whether the API server answers well."""
        if not self.authority.is_file():
            return False
        try:
            self.api.installed()
        except ApiError:
            return False
        return True

    def stop(self) -> None:
        """End everything, the last begun first."""
        if self._api is not None:
            self._api.close()
        for one in (self.scheduler, self.kubelets, self.manager, self.apiserver, self.etcd):
            one.kill()
        if self.warm is not None:
            self.warm.end()

    def write_kubeconfig(self, name: str, token: str, url: str = "") -> Path:
        """A kubeconfig for a user, perhaps by way of another address."""
        server = {"server": url or self.url} | ({} if url else {"certificate-authority": str(self.authority)})
        written: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        path = self.folder / f"{name}{'-proxied' if url else ''}.kubeconfig"
        path.write_text(yaml.safe_dump(written))
        return path

    def _write_keys(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
        (self.folder / "account.key").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
        (self.folder / "tokens.csv").write_text(
            f'{ADMIN},admin,1,"system:masters"\n{OURS},{ACCOUNT},2,"system:serviceaccounts"\n'
        )

    def _etcd_flags(self) -> list[str]:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver_flags(self) -> list[str]:
        key = self.folder / "account.key"
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={self.authority.parent}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount",  # pods need not wait for their namespace's account
            "--shutdown-delay-duration=0s",
            GATES,
        ]

    def _manager_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={self.folder / 'account.key'}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--concurrent-job-syncs=10",
            f"--node-monitor-grace-period={self._lease_s + 10}s",
            GATES,
        ]

    def _scheduler_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]

    def _kwok_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--config={HERE / 'stages.yaml'}",
            "--manage-all-nodes=true",
            f"--node-lease-duration-seconds={self._lease_s}",
        ]
