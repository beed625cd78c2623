"""Cases that a real mongod agrees with; see README.md beside this file."""
