"""What `bytescheduler advise` stands on: known models, profiles of others, predictions."""
