"""The tools of benchmarks: jobs on this host, hosts with rate-limited links, options, JSON."""
