"""Process groups in a job: their ranks and keys, and the part of a session that they use."""
