"""Resizing: a grid of one shape takes over from a grid of another while both run (docs/adr/0009-resizing.md).

1. The cells of the new generation start beside the old ones, and report their presence.
2. Ingest of the new generation notes the oldest version that all old cells have matched (`as_of`). From there it begins to read
   the change stream.
3. Ingest puts a fence into every old query pipeline. The old cells refuse registrations behind it. Registrations before it are
   copied to the new query pipelines, as of `as_of`.
4. New cells that have read all of them begin to send heartbeats. An app process that has heard every new cell relies on the new
   generation from then on, and the old one may stop.
"""
