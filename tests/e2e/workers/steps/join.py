"""A worker without MXNet that joins the job and leaves it."""

from bytescheduler._native import Worker

Worker.open().close()
