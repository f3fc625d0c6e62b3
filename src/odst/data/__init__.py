"""What comes in: sets, pools, sources."""
