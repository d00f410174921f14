"""Crypto++'s implementation of the five AES finalists.

    oracle = ace_oracle.load(directory)       None where Crypto++ or a compiler is missing (Debian: libcrypto++-dev)
    oracle(name, key, block, encrypt)
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ace_ciphers import NAMES

SOURCE = Path(__file__).with_name("ace_oracle.cpp")


def load(directory):
    """The library is built into `directory` if it is not there, whole or not at all."""
    library = Path(directory) / "libace_oracle.so"
    if not library.exists() or library.stat().st_mtime < SOURCE.stat().st_mtime:
        if not Path("/usr/include/cryptopp/mars.h").exists() or not shutil.which("g++"):
            return None
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            built = Path(scratch) / library.name
            subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", built, SOURCE, "-lcryptopp"], check=True)
            os.replace(built, library)
    function = ctypes.CDLL(str(library)).ace_oracle

    def oracle(name, key, block, encrypt):
        out = ctypes.create_string_buffer(16)
        function(NAMES.index(name), key, ctypes.c_size_t(len(key)), int(encrypt), block, out)
        return out.raw

    return oracle
