"""A real Slurm for the tests: one node with two CPUs, on the loopback address, in a temporary folder.

Its daemons are Debian's (``make slurm`` installs them) and run as the user of the tests; nothing of a Slurm
that the machine may have is read or changed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=3
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1,sched_min_interval=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
MaxArraySize=21
KillWait=2
MinJobAge=120
InactiveLimit=0
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=500 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=60 DefaultTime=10 State=UP
PartitionName=short Nodes={host} MaxTime=1 State=UP
"""
"""``cred_expire`` is also how long a requeued job waits before it may start again."""

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch")


def free_port() -> int:
    """A port on which nobody listens now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Slurm:
    """The daemons and the folder of their files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = socket.gethostname().partition(".")[0]
        self.conf = folder / "slurm.conf"
        self.daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start munged, slurmctld and slurmd, and wait for the node; a RuntimeError says what failed."""
        ports = {"controller": free_port(), "daemon": free_port()}
        user = pwd.getpwuid(os.getuid()).pw_name
        self.conf.write_text(CONF.format(folder=self.folder, host=self.host, user=user, **ports))
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        names = {"key-file": key.name, "pid-file": "munge.pid", "log-file": "munge.log", "seed-file": "seed"}
        files = [f"--{flag}={self.folder / name}" for flag, name in names.items()]
        munge = ["munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *files]
        self._daemon(munge)
        self._wait(lambda: (self.folder / "munge.socket").exists(), "munged")
        self._daemon(["slurmctld", "-D", "-i", "-f", str(self.conf)])
        self._daemon(["slurmd", "-D", "-f", str(self.conf), "-N", self.host])
        self._wait(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%T"), "slurmd")

    def _daemon(self, command: list[str]) -> None:
        log = (self.folder / f"{command[0]}.out").open("wb")
        with log:
            self.daemons.append(
                subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, start_new_session=True)
            )

    def _wait(self, ready: Callable[[], bool], name: str, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            ended = [one.args[0] for one in self.daemons if one.poll() is not None]  # type: ignore[index]
            if ended or time.monotonic() > deadline:
                logs = "".join(path.read_text()[-600:] for path in sorted(self.folder.glob("*.out")))
                raise RuntimeError(f"{name} is not ready; ended: {ended}; {logs[-1500:]}")
            time.sleep(0.1)

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that uses this Slurm."""
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, timeout=60)
        return done.stdout

    def stop(self) -> None:
        """Cancel every job, end the daemons, and wait for them."""
        user = pwd.getpwuid(os.getuid()).pw_name
        self.ask("scancel", "--signal=KILL", f"--user={user}")
        self.ask("scancel", f"--user={user}")
        for one in reversed(self.daemons):
            one.terminate()
        for one in reversed(self.daemons):
            try:
                one.wait(15)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()


@contextmanager
def slurm() -> Iterator[Slurm]:
    """The body of a fixture: a running Slurm; the test is skipped where it cannot be."""
    missing = [name for name in DAEMONS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"There is no {' and no '.join(missing)} here; make slurm installs Debian's Slurm.")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    cluster = Slurm(folder)
    try:
        try:
            cluster.start()
        except RuntimeError as error:
            pytest.skip(f"Slurm cannot start here: {error}")
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def bytes_of(out: Path) -> dict[str, bytes]:
    """The records and the weights of every run."""
    paths = [path for name in ("records.jsonl", "model.pt") for path in out.glob(f"*/{name}")]
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


def wait_for(what: Callable[[], object], seconds: float = 600.0) -> object:
    """What a call returns, as soon as it is not empty."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.1)
    return found


def until_warned(pid: int) -> None:
    """Stop a process until Slurm warns it that its time is up, which lets it go on, too."""
    os.kill(pid, signal.SIGSTOP)

    def awake() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "T"
        except (FileNotFoundError, ProcessLookupError):
            return True

    time.sleep(1)
    wait_for(awake)
