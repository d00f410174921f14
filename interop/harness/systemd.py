"""Runs a systemd of the test's own: it is init of its own process namespace, with the installed unit and few
others."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from .esplanade import ROOT, binary
from .namespaces import Namespace
from .process import Process, run, wait_until

SYSTEMD = Path("/lib/systemd/systemd")
# The script makes copies of the folders that systemd and `make install` write to. It uses none of the machine's own
# units.
BOOT = """
set -eu
root=$1 repository=$2 program=$3 group=$4
mount --make-rprivate /
mount -t tmpfs tmpfs "$root"
cd "$root"
mkdir etc local none units
cp -a /etc/. etc/
rm -rf etc/systemd/system/* etc/init.d/*
mount --bind etc /etc
mount --bind local /usr/local
mount --bind units /lib/systemd/system
[ ! -d /lib/systemd/system-generators ] || mount --bind none /lib/systemd/system-generators
mount -t tmpfs tmpfs /run
for target in sysinit basic network nss-lookup multi-user shutdown; do
  printf '[Unit]\\nDescription=%s\\nDefaultDependencies=no\\n' $target >"/lib/systemd/system/$target.target"
done
make --no-print-directory -C "$repository" install "BINARY=$program"
systemd-sysusers
echo $$ >"$group/cgroup.procs"
exec unshare --cgroup sh -euc '
  umount -R /sys/fs/cgroup
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  exec env -i container=other PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin \\
    /lib/systemd/systemd --system --unit=multi-user.target --log-target=console --show-status=0'
"""


class Systemd:
    """A systemd that the constructor boots. Its processes and mounts end with it."""

    def __init__(self, space: Namespace, folder: Path):
        self.log = folder / "systemd.log"
        root = folder / "systemd"
        root.mkdir()
        # The cgroups belong to the machine, so this systemd gets one cgroup that is removed with it.
        self._group = _cgroups() / f"esplanade-{folder.name}"
        self._group.mkdir()
        namespaces = ["--pid", "--mount", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        argv = ["unshare", *namespaces, "sh", "-c", BOOT, "boot", root, ROOT, binary(), self._group]
        self._process = Process(space.wrap(argv), log=self.log)
        self._init = wait_until("systemd runs", self._find, timeout=30)
        wait_until("systemd answers", lambda: self.systemctl("is-system-running", check=False).stdout.strip() in
                   ("running", "degraded"), timeout=30)

    def _find(self) -> int | None:
        assert self._process.returncode is None, self.log.read_text(errors="replace")
        for children in Path(f"/proc/{self._process.popen.pid}/task").glob("*/children"):
            for child in children.read_text().split():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                        return int(child)
        return None

    def run(self, argv, **options):
        """Runs a command inside, as root."""
        return run(["nsenter", "--target", self._init, "--all", "--", *argv], **options)

    def systemctl(self, *arguments: str, **options):
        return self.run(["systemctl", "--no-pager", *arguments], **options)

    def path(self, path: str) -> Path:
        """The path outside of a file inside."""
        return Path(f"/proc/{self._init}/root{path}")

    def show(self, unit: str, name: str) -> str:
        return self.systemctl("show", "--value", f"--property={name}", unit).stdout.strip()

    def close(self) -> None:
        self._process.stop()
        wait_until("its processes are gone", lambda: "populated 0" in (self._group / "cgroup.events").read_text())
        for group, _, _ in os.walk(self._group, topdown=False):
            os.rmdir(group)


def _cgroups() -> Path | None:
    """The folder of the version 2 cgroups."""
    for mount in Path("/proc/self/mounts").read_text().splitlines():
        _, path, kind, *_ = mount.split()
        if kind == "cgroup2":
            return Path(path)
    return None


def missing() -> str | None:
    """The reason why no systemd can be booted here, or None."""
    if not SYSTEMD.exists() or shutil.which("systemd-sysusers") is None:
        return "systemd is not installed"
    _, _, users = Path("/proc/self/uid_map").read_text().split()
    if int(users) < 1 << 16:
        return "a user's namespace has too few users for systemd"
    groups = _cgroups()
    if groups is None or not os.access(groups / "cgroup.procs", os.W_OK):
        return "no cgroup can be made"
    return None
