"""The wire: connections, TLS and HTTP/1.1, behind one seam (transport.py)."""
