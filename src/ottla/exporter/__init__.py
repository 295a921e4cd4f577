"""What `ottla exporter` does: poll a cluster, serve metrics of its groups, and send events."""
