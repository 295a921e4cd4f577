"""What a consumer decides: subscription, membership, positions, what to fetch and commit next. Pure."""
