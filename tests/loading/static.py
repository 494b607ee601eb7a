"""static.py PLUGIN PLUGIN: that two shared objects which each hold the static library keep it to themselves."""
import os
import re
import subprocess
import sys
import tempfile

plugins = [os.path.realpath(path) for path in sys.argv[1:]]
ours = re.compile(r"jitgemm|spdlog|fmt::|nlohmann|boost|fcontext|XXH")

for plugin in plugins:
    shown = subprocess.run(["nm", "--dynamic", "--demangle", "--defined-only", plugin], check=True, capture_output=True,
                           text=True).stdout
    assert "plugin_multiply" in shown
    leaked = [line for line in shown.splitlines() if ours.search(line)]
    assert not leaked, f"{plugin} shows what is the library's own:\n" + "\n".join(leaked)

# Both in one scope, where the second would take what the first shows.
program = """
import ctypes, os, sys
loaded = [ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL) for path in sys.argv[1:]]
sys.exit(max(plugin.plugin_multiply() for plugin in loaded))
"""
with tempfile.TemporaryDirectory() as folder:
    environment = dict(os.environ, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=os.path.join(folder, "bindings"))
    subprocess.run([sys.executable, "-c", program, *plugins], check=True, env=environment)
    text = "".join(open(os.path.join(folder, name), encoding="utf-8").read() for name in os.listdir(folder))
bindings = [line for line in text.splitlines() if "binding file " + plugins[1] in line]
assert bindings, "the loader says nothing about its bindings"
crossing = [line for line in bindings if f" to {plugins[0]} " in line]
names = subprocess.run(["c++filt"], input="\n".join(crossing), check=True, capture_output=True, text=True).stdout
crossing = [line for line in names.splitlines() if ours.search(line.split("symbol", 1)[1])]
assert not crossing, "one plugin binds into the other:\n" + "\n".join(crossing)
