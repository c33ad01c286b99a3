"""Our server, as `python -m bytescheduler.server` runs it, in a process that has MXNet already.

So no server pays for the import when an optimizer comes to it.
"""

import runpy

runpy.run_module("bytescheduler.server", run_name="__main__", alter_sys=True)
