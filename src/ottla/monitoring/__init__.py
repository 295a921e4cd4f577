"""What a monitor of groups decides: lag in seconds, losses, stalls, and which events to send. Pure."""
