"""Where per-shard work runs: this machine's processes, Ray, or one of n independent calls."""
