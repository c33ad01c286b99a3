"""The timelines that nodes of a job write: their files, clocks, steps and pictures."""
