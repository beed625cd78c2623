"""Local HTTP servers that enforce the documented contract of a hosted CDN's purge API: one small module for each provider.

None is the provider: what the documentation does not say, they do not know. Each first passes with the provider's own SDK.
"""
