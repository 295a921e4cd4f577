"""What pages show, computed from what the cluster answered. Pure functions: no HTTP, no requests to brokers."""
