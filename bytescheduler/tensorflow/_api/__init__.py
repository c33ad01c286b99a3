"""Functions of bytescheduler.tensorflow."""
