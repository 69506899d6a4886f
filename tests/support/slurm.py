"""A Slurm of one node on this machine: munged, slurmctld and slurmd, each started by hand."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from getpass import getuser
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
MISSING = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
WHY_NOT = f"NOT TESTED: {', '.join(MISSING)} missing: apt-get install slurmctld slurmd slurm-client munge"
CPUS = 16
"""That the node says it has: jobs wait for each other on a machine with fewer, and nothing here needs them."""

CONFIG = """ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=1
SlurmdParameters=config_overrides
KillWait=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=100000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Slurm:
    """Commands of users, such as ``sbatch``, by `run`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _PATH}

    def run(self, *command: str, path: str = "") -> str:
        """What the command prints; ``path``: folder with more programs, for it and for the jobs that it starts."""
        environment = self.environment | {"PATH": os.pathsep.join(filter(None, (path, _PATH)))}
        done = subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def until_ready(self) -> None:
        """Wait until the node takes jobs."""
        end_s = time.monotonic() + 60
        while self.run("sinfo", "--noheader", "--format", "%t").strip() != "idle":
            assert time.monotonic() < end_s, self.logs()
            time.sleep(0.2)

    def logs(self) -> str:
        """What the programs say."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))


@contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """It runs until the block ends. ``folder``: short, because it has sockets."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    (folder / "slurm.conf").write_text(
        CONFIG.format(
            host=socket.gethostname().partition(".")[0],
            controller=_free_port(),
            node=_free_port(),
            folder=folder,
            user=getuser(),
            cpus=CPUS,
        )
    )
    found = Slurm(folder)
    with ExitStack() as stack:
        _start(stack, found, "munged", "--foreground", "--force", *_munge_files(folder))
        _until_exists(folder / "munge.socket", found)
        _start(stack, found, "slurmctld", "-D", "-c")
        _start(stack, found, "slurmd", "-D")
        found.until_ready()
        yield found


def _munge_files(folder: Path) -> list[str]:
    names = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munged.pid", "seed-file": "munge.seed"}
    return [f"--{option}={folder / name}" for option, name in (names | {"log-file": "munged.log"}).items()]


def _start(stack: ExitStack, found: Slurm, *command: str) -> None:
    log = stack.enter_context((found.folder / f"{command[0]}.out.log").open("wb"))
    process = subprocess.Popen(command, env=found.environment, cwd=found.folder, stdout=log, stderr=log)
    stack.callback(_end, process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _until_exists(path: Path, found: Slurm) -> None:
    end_s = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < end_s, found.logs()
        time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
