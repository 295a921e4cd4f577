"""What the leader and the followers of one partition decide. Pure: the broker holds the logs and performs."""
