"""What can be known and planned about consumer groups, for the command line and the console."""
