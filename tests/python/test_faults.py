"""Whichever call of the CUDA driver or of NVRTC fails, Python gets one exception or one line in the log, and nothing is
lost.

What users see is what the same faults show in C++, tools/results/faults.md.
"""
import pytest
from fake_cuda import KINDS, arm, failures_of, fake, holds_lock
from fault_results import RECORDED, Log, log, without_names  # noqa: F401
from fault_scenario import STEPS, Step, World, loaded  # noqa: F401


def calls_of(step: Step, log: Log) -> list[tuple[str, bool, int]]:
    """What a step calls when nothing fails: function, whether on a helper thread, how often."""
    before = fake.fake_alive()
    world = World(tuning=step.tuning)
    step.prepare(world)
    arm()
    step.run(world)
    counts = [line.split() for line in fake.fake_counts().decode().splitlines()]
    assert log.said() == []
    world.remove()
    assert fake.fake_alive() == before
    return [(name, helper == "1", int(count)) for name, helper, count in counts]


def require_clear(error: Exception, function: str) -> None:
    """One exception of Python's own kinds with the library's sentence."""
    assert type(error) is KINDS.get(error.code, RuntimeError)
    assert error.args == (str(error),) and "\n" not in str(error)
    assert error.__cause__ is None and error.__context__ is None
    short = function.partition("_v")[0]
    assert short in error.call
    if function != "nvrtcCompileProgram":
        assert short in str(error)
    elif error.code == "compile_failed":
        assert "made_to_fail" in error.log
    if error.code in ("compile_failed", "load_failed"):
        assert error.problem and (error.config or "no candidate can be checked" in str(error))
    assert all(isinstance(text, str) for text in (error.problem, error.config, error.log))


def with_fault(step: Step, function: str, helper: bool, occurrence: int, name: str, result: int, log: Log) -> bool:
    """Runs a step in which one call fails, and checks what that leaves behind. Whether the call was made."""
    before = fake.fake_alive()
    world = World(tuning=step.tuning)
    step.prepare(world)
    assert log.said() == []
    arm(function, occurrence, result, helper)
    error = None
    try:
        step.run(world)
    except (RuntimeError, ValueError, OSError, MemoryError) as caught:
        error = caught.with_traceback(None)  # whose frames hold objects
    fired = bool(fake.fake_fired())
    arm()
    assert holds_lock() == 1
    said = log.said()
    same_thread = fake.fake_restore_thread()
    assert same_thread or any("current context may be another" in line or "capture mode stays" in line for line in said)

    if fired and error is not None:
        require_clear(error, function)
        assert said == []
        # Where nothing was tuned before, the kernel that checks is the first to fail.
        text = without_names(str(error), world).removeprefix("no candidate can be checked: ")
        assert f"`{error.code}`: {text}" in RECORDED[function, name]
    elif fired:
        assert len(said) <= 1
        seen = "; log: ".join(["carries on", *(without_names(line, world) for line in said)])
        # The end of a Context waits for the device; what goes wrong with that is for the device's next call to say.
        assert seen in RECORDED[function, name] or (step.ends and not said)
    else:
        assert error is None

    if step.name != "end":
        step.run(world)  # the next one works
        assert log.said() == []
    world.remove()
    assert log.said() == []
    lost = fake.fake_alive() - before
    told = sum("stays until" in line for line in said)
    # The driver is gone, and has freed all.
    gone = name == "CUDA_ERROR_DEINITIALIZED" and error is None
    assert lost == told or (gone and lost == 1)
    return fired


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_failure_is_one_exception_or_one_line(step: Step, log: Log):
    wrong = []
    for function, helper, count in calls_of(step, log):
        occurrences = [1] if helper else sorted({1, min(count, 4) if step.tunes else count})
        for occurrence in occurrences:
            for name, result in list(failures_of(function).items())[:1 if helper or occurrence > 1 else None]:
                where = f"{function} = {name}, call {occurrence} of {count}{' on a helper thread' if helper else ''}"
                try:
                    fired = with_fault(step, function, helper, occurrence, name, result, log)
                    assert fired or step.tunes
                except Exception as error:  # one report of all
                    arm()
                    log.said()
                    wrong.append(f"{where}: {error!r}")
    assert not wrong, "\n".join(wrong)
