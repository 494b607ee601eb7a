"""exports.py LIBRARY LIST: that libjitgemm.so shows the names in src/exports.txt and no others."""
import re
import subprocess
import sys

library, names_file = sys.argv[1:]
with open(names_file, encoding="utf-8") as file:
    listed = [line.rstrip("\n") for line in file if not line.startswith("#")]
symbols = subprocess.run(["nm", "--dynamic", "--demangle", "--defined-only", "--format=posix", library], check=True,
                         capture_output=True, text=True).stdout.splitlines()
names = [re.sub(r" [A-Za-z] [0-9a-f]+ [0-9a-f]*$", "", line) for line in symbols]
names = {re.sub(r"(\[abi:cxx11\])?(\(.*)?$", "", name) for name in names}  # without arguments

assert listed == sorted(set(listed)), f"{names_file} is not sorted, or has a name twice"
assert names, f"{library} shows nothing"
failed = False
for name in sorted(names - set(listed)):
    print(f"{library} shows {name}: hide it, or list it in {names_file}")
    failed = True
for name in sorted(set(listed) - names):
    print(f"{library} does not show {name}: mark it with JITGEMM_EXPORT, or take it from {names_file}")
    failed = True
sys.exit(failed)
