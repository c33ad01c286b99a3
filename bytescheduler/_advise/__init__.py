"""The parts of `bytescheduler advise`: known models, recorded profiles, predictions."""
