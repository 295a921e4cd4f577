"""Access to the brokers of a cluster: connections, metadata, routing to leaders and coordinators, retries."""
