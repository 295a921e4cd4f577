"""Who a client is and what it may do, as values: principals, ACLs, credentials, quotas. Pure, and below the configs."""
