"""Processes that lack the driver, NVRTC or one of their functions, and such as end while the driver fails."""
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest
from fake_cuda import PRODUCT, SPLIT
from fault_results import Log, log  # noqa: F401
from fault_scenario import loaded  # noqa: F401

import jitgemm


def finished(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process that has run a program, and can import what this file does."""
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True,
                          timeout=300, env=os.environ | {"PYTHONPATH": path} | environment)
    assert done.returncode == 0, done.stderr
    return done


def printed(program: str, *arguments: str, **environment: str) -> list[str]:
    return finished(program, *arguments, **environment).stdout.splitlines()


def test_loading_fails_until_all_is_there():
    source = pathlib.Path(__file__).parents[2] / "src/backend/cuda/driver_api.cpp"
    optional = re.findall(r'bind_if_there\(library, .*"(\w+)"', source.read_text())
    assert "cuStreamGetCaptureInfo_v3" in optional
    assert printed("""
        import os
        import sys
        from fake_cuda import LIBRARY, PRODUCT, SPLIT, arm, failures_of, fake
        from fault_results import RECORDED
        from fault_scenario import World, compile_one
        import jitgemm

        def fails(code, call):
            try:
                call()
            except RuntimeError as error:
                assert error.code == code and len(str(error).splitlines()) == 1, error
                return f"`{code}`: {error}"
            raise AssertionError("it works")

        optional = sys.argv[1:]
        names = [name for name in fake.fake_names().decode().split() if name not in optional]
        missing = 0
        for name in names:
            os.environ["JITGEMM_FAKE_MISSING"] = name
            if name.startswith("cu"):
                for call in (lambda: jitgemm.Context("cuda:0"), lambda: PRODUCT.run()):
                    seen = fails("no_device", call)
                    assert seen.replace(name, "(it)") in RECORDED["each", "not there"], seen
                assert jitgemm.devices() == []
                missing += 1
        os.environ["JITGEMM_FAKE_MISSING"] = "cuStreamGetCaptureInfo_v3"
        for name, result in failures_of("cuInit").items():
            arm("cuInit", 1, result)
            assert fails("no_device", lambda: jitgemm.Context("cuda:0")) in RECORDED["cuInit", name]
        arm()
        world = World()
        for name in names:
            os.environ["JITGEMM_FAKE_MISSING"] = name
            if name.startswith("nvrtc"):
                seen = fails("no_compiler", lambda: compile_one(world))
                known = {row.replace("libnvrtc.so", LIBRARY) for row in RECORDED["each", "not there"]}
                assert seen.replace(f"no {name}", "no (it)") in known, seen
                missing += 1
        os.environ["JITGEMM_FAKE_MISSING"] = ""
        for name, result in failures_of("nvrtcVersion").items():
            arm("nvrtcVersion", 1, result)
            assert fails("no_compiler", lambda: compile_one(world)) in RECORDED["nvrtcVersion", name]
        arm()
        PRODUCT.run(config=SPLIT, context=world.context)
        world.remove()
        print(missing == len(names) > 50, fake.fake_alive())
    """, *optional) == ["True 0"]


WITHOUT_NVRTC = """
    import os, sys
    from fake_cuda import LIBRARY, PRODUCT, SPLIT, fake
    from fault_scenario import World, describe
    import jitgemm

    os.environ["JITGEMM_NVRTC"] = sys.argv[1]
    world = World()
    describe(world)
    for _ in range(2):
        try:
            PRODUCT.run(config=SPLIT, context=world.context)
        except (RuntimeError, ValueError) as error:
            print(type(error).__name__, error.code, error)
    cached = jitgemm.Context("cuda:0", tuning="off", cache_dir=sys.argv[2])
    PRODUCT.run(config=SPLIT, context=cached)  # compiled by another process
    del cached
    os.environ["JITGEMM_NVRTC"] = LIBRARY
    PRODUCT.run(config=SPLIT, context=world.context)
    world.remove()
    print(fake.fake_alive())
"""


@pytest.mark.parametrize("content, kind, code, message", [
    (b"no library", "RuntimeError", "no_compiler",
     r"no NVRTC to compile kernels with \(.* cannot be loaded\); install .*"),
    (None, "ValueError", "invalid_option",
     r"JITGEMM_NVRTC=.* is neither a libnvrtc.so nor a folder .*; correct or unset it"),
])
def test_without_nvrtc(content: bytes | None, kind: str, code: str, message: str, tmp_path: pathlib.Path, log: Log):
    cached = tmp_path / "cache"
    PRODUCT.run(config=SPLIT, context=jitgemm.Context("cuda:0", tuning="off", cache_dir=cached))
    library = tmp_path / "libnvrtc.so"
    if content is not None:
        library.write_bytes(content)
    *errors, alive = printed(WITHOUT_NVRTC, str(library), str(cached))
    assert len(errors) == 2 and alive == "0"
    for line in errors:
        assert re.fullmatch(f"{kind} {code} {message}", line), line


def test_without_a_driver(tmp_path: pathlib.Path):
    (tmp_path / "libcuda.so.1").write_bytes(b"no library")
    first, second = printed("""
        import jitgemm
        assert jitgemm.devices() == []
        for device in ("cuda", "cuda:1"):
            try:
                jitgemm.Context(device)
            except RuntimeError as error:
                print(error.code, error)
        assert "Fake" not in jitgemm.explain("16x16x16", context=jitgemm.Context("compile_only", architecture="sm_90a"))
    """, LD_LIBRARY_PATH=str(tmp_path))
    for line in (first, second):
        assert re.fullmatch(r"no_device no CUDA driver \(.*libcuda.so.1.*\); install the NVIDIA driver, .*", line), line


@pytest.mark.parametrize("function, name, lines", [
    ("cuStreamSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", 0), ("cuCtxGetCurrent", "CUDA_ERROR_DEINITIALIZED", 0),
    ("cuMemFree", "CUDA_ERROR_UNKNOWN", 1), ("cuDevicePrimaryCtxRelease", "CUDA_ERROR_UNKNOWN", 1)])
def test_a_process_ends_though_the_driver_fails(function: str, name: str, lines: int):
    done = finished("""
        import shutil, sys
        from fake_cuda import PRODUCT, SPLIT, arm, failures_of, fake
        from fault_scenario import World
        world = World()
        PRODUCT.run(config=SPLIT, context=world.context)
        PRODUCT.run(config=SPLIT)
        shutil.rmtree(world.folder)
        arm()
        fake.fake_fail_always(sys.argv[1].encode(), failures_of(sys.argv[1])[sys.argv[2]])
    """, function, name)
    assert len(done.stderr.splitlines()) == done.stderr.count(" jitgemm warning: ") == lines, done.stderr
