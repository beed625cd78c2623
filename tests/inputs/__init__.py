"""What decides an answer besides the database: request fields, the client, clocks, other clients. Bare app beside cached app."""
