"""PCRE's pattern syntax, as mongod 6.0 understands it, translated for engines that cannot be made to run for ever."""
