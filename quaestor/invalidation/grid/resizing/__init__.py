"""Resizing: a grid of one shape takes over from a grid of another while both run (docs/adr/0009-resizing.md).

1. The cells of the new generation start, beside those of the old one, and say that they are present.
2. Ingest of the new generation notes the oldest version that all cells of the old one have matched (`as_of`), and begins to
   read the change stream there.
3. It puts a fence into every old query pipeline. Registrations behind it are refused by the old cells; those before it are
   copied to the new query pipelines, as of `as_of`.
4. New cells that have read all of them begin to send heartbeats. App processes that have heard of every cell of the new
   generation rely on it from then on, and the old one may stop.
"""
