"""The web console: pages for a cluster, rendered on the server.

`server.py` runs it, `app.py` puts it together, `pages/` has a module for each page, and `views/` computes what they
show.
"""
