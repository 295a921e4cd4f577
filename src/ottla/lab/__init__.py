"""Designs of group management compared on the same churn, in virtual time."""
