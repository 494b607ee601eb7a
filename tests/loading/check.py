"""check.py LIBRARY PLUGIN: that any process can open libjitgemm.so at any time, and close it."""
import _ctypes
import ctypes
import re
import subprocess
import sys
import threading

MOST_TLS_BYTES = 1024  # every thread of a process that is linked with the library has them in its stack

library, plugin = sys.argv[1:]


def readelf(option):
    return subprocess.run(["readelf", option, "--wide", library], check=True, capture_output=True, text=True).stdout


# Static thread-local storage is what a process that runs already has little left of.
assert "STATIC_TLS" not in readelf("--dynamic"), "the library needs static thread-local storage"
segment = re.search(r"^\s*TLS(?:\s+0x[0-9a-f]+){4}\s+(0x[0-9a-f]+)", readelf("--program-headers"), re.MULTILINE)
tls_bytes = int(segment[1], 16) if segment else 0
assert tls_bytes <= MOST_TLS_BYTES, f"{tls_bytes} bytes of thread-local storage"
# Threads and exit handlers of the library outlive dlclose().
assert "NODELETE" in readelf("--dynamic"), "the library can be unloaded"

threading.stack_size(32 << 10)
for _ in range(100):
    handles = [ctypes.CDLL(library), ctypes.CDLL(plugin)]
    thread = threading.Thread(target=handles[1].plugin_describe)
    thread.start()
    thread.join()
    if _ == 0:
        assert handles[1].plugin_multiply() == 0
    for handle in handles:
        _ctypes.dlclose(handle._handle)
