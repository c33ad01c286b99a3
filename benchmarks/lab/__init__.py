"""What benchmarks measure with: jobs on this host, hosts with rate-limited links, options, JSON."""
