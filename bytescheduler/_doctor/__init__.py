"""What `bytescheduler doctor` looks at: one module for each part of a host, and the link."""
