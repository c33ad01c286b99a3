"""The place of this process in its job, which init() takes."""
