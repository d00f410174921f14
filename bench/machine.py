"""The machine of a record. Nothing is needed here but Python."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

RECORDS = Path(__file__).with_name("records")


def machine() -> dict[str, object]:
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*:\s*(.*)", cpuinfo)
    flags = re.search(r"flags\s*:\s*(.*)", cpuinfo)
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    interesting = ("aes", "vaes", "pclmulqdq", "vpclmulqdq", "avx2", "avx512f", "sha_ni", "hypervisor")
    return {
        "cpu": model[1].strip() if model else platform.processor(),
        "cores": os.cpu_count(),
        "flags": [flag for flag in interesting if flags and flag in flags[1].split()],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "governor": governor.read_text().strip() if governor.exists() else "not visible (virtual machine)",
        "kernel": platform.release(),
        "load_at_start": os.getloadavg()[0],
    }


def machine_name(facts: dict[str, object]) -> str:
    model = re.sub(r"\(.*?\)|processor|cpu|@.*", " ", str(facts["cpu"]).lower())
    slug = "-".join(re.findall(r"[a-z0-9.]+", model))[:32].strip("-") or "unknown"
    return f"{facts['cores']}x-{slug}"
