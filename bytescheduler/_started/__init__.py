"""How a launcher started this process, and how a worker tells `bslaunch` where it is."""
