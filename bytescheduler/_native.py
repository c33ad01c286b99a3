"""The native extension, or a paragraph that says what to do about it."""

import pathlib
import re
import sysconfig

try:
    from bytescheduler._core import (
        FIRST_BOOKKEEPING_KEY,
        Coding,
        Completions,
        Gate,
        HostFact,
        Metric,
        MXNetCopier,
        MXNetPlugin,
        MXNetRounds,
        MXNetStore,
        Node,
        Pending,
        Prediction,
        RdmaProbe,
        Setting,
        Value,
        Worker,
        about_host,
        await_names,
        c_api,
        check_settings,
        fail_exit,
        leave_for,
        names_known,
        partition_and_credit,
        predict,
        settings,
        values,
        version,
        vouch_for,
    )
except ImportError as error:
    _here = pathlib.Path(__file__).resolve().parent
    _built = sorted(path.name for path in _here.glob("_core.*.so"))
    _wanted = "_core" + (sysconfig.get_config_var("EXT_SUFFIX") or ".so")
    _library = re.match(r"(\S+\.so\S*): cannot open shared object file", str(error))
    if _wanted in _built and _library:
        # Debian calls a package by the library and the number of its interface.
        _package = _library.group(1).replace(".so.", "")
        _why = (
            f"{_wanted} needs {_library.group(1)}. On Debian or Ubuntu: apt-get install {_package}"
        )
    elif _wanted in _built:
        _why = (
            f"{_wanted} is there, but it does not load or is older than the Python files beside it "
            f"({error}). Build it anew: pip install . (or pip install -e .)"
        )
    elif _built:
        _why = (
            f"it was built for another Python ({', '.join(_built)}), this one wants {_wanted}. "
            "Build it with this Python: python -m pip install ."
        )
    elif (_here.parent / "setup.py").is_file():
        _why = (
            f"{_here} is a source tree in which it was not built. Run pip install -e . there, or "
            "pip install . and then start Python in another directory"
        )
    else:
        _why = "the installation is incomplete. Install the package again: pip install ."
    raise ImportError(f"bytescheduler's native extension cannot be used: {_why}") from error

__all__ = [
    "FIRST_BOOKKEEPING_KEY",
    "Coding",
    "Completions",
    "Gate",
    "HostFact",
    "Metric",
    "MXNetCopier",
    "MXNetPlugin",
    "MXNetRounds",
    "MXNetStore",
    "Node",
    "Pending",
    "Prediction",
    "RdmaProbe",
    "Setting",
    "Value",
    "Worker",
    "about_host",
    "await_names",
    "c_api",
    "check_settings",
    "fail_exit",
    "leave_for",
    "names_known",
    "partition_and_credit",
    "predict",
    "settings",
    "values",
    "version",
    "vouch_for",
]
