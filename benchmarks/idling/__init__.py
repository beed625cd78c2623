"""Apps of the benchmark `idle`, one a module: what one of them imports is not the other's."""
