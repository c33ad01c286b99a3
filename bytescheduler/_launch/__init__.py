"""How a job starts on this host: the roles of a whole job, or one worker's command."""
