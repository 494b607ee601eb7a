"""Each run has a kernel cache of its own, and the emulator's warning is no matter."""
import os
import tempfile

import pytest

_cache = tempfile.TemporaryDirectory(prefix="jitgemm-test-")
os.environ.setdefault("JITGEMM_CACHE_DIR", _cache.name)
os.environ.setdefault("JITGEMM_TUNING", "off")

# So that their assertions tell as much as those of tests.
pytest.register_assert_rewrite("epilogue_cases", "fake_cuda", "fault_results", "fault_scenario", "parallel_world")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a CUDA device")
    config.addinivalue_line("filterwarnings", "ignore:jitgemm multiplies arrays on the CPU")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    import jitgemm

    if jitgemm.devices():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="there is no CUDA device"))
