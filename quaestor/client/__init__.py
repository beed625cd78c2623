"""The Python client: reads through copies kept in its own memory, none staler than Δ, by the Cache Sketch of a server.

`exchange` holds the rules, without I/O and without a clock; the two transports for httpx apply them. The client shares with the
server the names of URLs (`quaestor.read_path.key`) and the format of the sketch (`quaestor.cache_sketch.wire_format`).
"""
