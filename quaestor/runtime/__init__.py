"""Runtime of a Quaestor: the parts that it is made of, and the background work that runs beside the requests."""
